//! Commands that clients, tools and exporters send besides those for keys: INFO, COMMAND, CONFIG,
//! CLIENT, HELLO, SELECT.

use std::fmt::Write;
use std::time::Duration;

use wakeful::net::ListenAddr;

use super::command::{DESCRIPTIONS, Description, printable};
use super::reply;
use super::resp::Words;
use super::service::Service;

/// The version of Redis whose answers these are. Clients choose their commands by it.
const REDIS_VERSION: &str = "7.0.0";
/// The longest name of a connection, in bytes.
const LONGEST_NAME: usize = 256;

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

fn unknown_subcommand(command: &str, word: &[u8], out: &mut Vec<u8>) {
    let word = printable(word, 128);
    reply::error(out, &format!("ERR unknown subcommand '{word}' of '{command}'"));
}

pub(super) fn select(database: &[u8], out: &mut Vec<u8>) {
    if database == b"0" {
        reply::ok(out);
    } else {
        reply::error(out, "ERR DB index is out of range: there is database 0 only");
    }
}

/// The identity of a connection.
#[derive(Debug)]
pub(super) struct Client {
    number: u64,
    name: Vec<u8>,
}

impl Client {
    pub(super) fn new(number: u64) -> Self {
        Self { number, name: Vec::new() }
    }

    fn number(&self) -> i64 {
        i64::try_from(self.number).unwrap_or(i64::MAX)
    }

    pub(super) fn answer(&mut self, words: Words<'_>, out: &mut Vec<u8>) {
        let subcommand = words.get(0).unwrap_or_default();
        match (words.len(), words.get(1)) {
            (1, _) if is(subcommand, "ID") => reply::integer(out, self.number()),
            (1, _) if is(subcommand, "GETNAME") && self.name.is_empty() => reply::null(out),
            (1, _) if is(subcommand, "GETNAME") => reply::bulk(out, &self.name),
            (2, Some(name)) if is(subcommand, "SETNAME") => {
                if self.set_name(name) {
                    reply::ok(out);
                } else {
                    let text = "ERR Client names cannot contain spaces, newlines or special \
                                characters, and have 256 bytes at most.";
                    reply::error(out, text);
                }
            }
            // The client library's name and version, which are not stored.
            (3, _) if is(subcommand, "SETINFO") => reply::ok(out),
            _ => unknown_subcommand("client", subcommand, out),
        }
    }

    fn set_name(&mut self, name: &[u8]) -> bool {
        let valid = name.len() <= LONGEST_NAME && name.iter().all(u8::is_ascii_graphic);
        if valid {
            name.clone_into(&mut self.name);
        }
        valid
    }

    pub(super) fn hello(&mut self, words: Words<'_>, out: &mut Vec<u8>) {
        match words.get(0) {
            None | Some(b"2") => {}
            Some(_) => return reply::error(out, "NOPROTO unsupported protocol version"),
        }
        let options = words.skip(1);
        match (options.len(), options.get(0), options.get(1)) {
            (0, ..) => {}
            (2, Some(option), Some(name)) if is(option, "SETNAME") && self.set_name(name) => {}
            _ => return reply::error(out, "ERR Syntax error in HELLO"),
        }
        reply::array(out, 14);
        for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
            reply::bulk(out, name.as_bytes());
            reply::bulk(out, value.as_bytes());
        }
        for (name, value) in [("proto", 2), ("id", self.number())] {
            reply::bulk(out, name.as_bytes());
            reply::integer(out, value);
        }
        for (name, value) in [("mode", "standalone"), ("role", "master")] {
            reply::bulk(out, name.as_bytes());
            reply::bulk(out, value.as_bytes());
        }
        reply::bulk(out, b"modules");
        reply::array(out, 0);
    }
}

/// A limit, because an answer is made in one piece, and may be long, or need each name to be
/// compared with many others.
const MOST_NAMES: usize = 1024;

/// The most bytes that describe one command.
const LONGEST_DESCRIPTION: usize = 128;

/// No answer of [`commands`] has more bytes.
pub(super) fn longest_commands(words: Words<'_>) -> usize {
    words.len().clamp(DESCRIPTIONS.len() + 1, MOST_NAMES) * LONGEST_DESCRIPTION
}

pub(super) fn commands(words: Words<'_>, out: &mut Vec<u8>) {
    if words.len() > MOST_NAMES {
        return reply::error(out, "ERR too many names of commands in one command");
    }
    let named = |word: &[u8]| DESCRIPTIONS.iter().find(|command| is(word, command.name));
    match words.get(0) {
        None => {
            reply::array(out, DESCRIPTIONS.len());
            DESCRIPTIONS.iter().for_each(|command| describe(command, out));
        }
        Some(word) if is(word, "COUNT") => reply::integer(out, DESCRIPTIONS.len() as i64),
        Some(word) if is(word, "LIST") => {
            reply::array(out, DESCRIPTIONS.len());
            DESCRIPTIONS.iter().for_each(|command| reply::bulk(out, command.name.as_bytes()));
        }
        Some(word) if is(word, "INFO") => {
            let asked = words.skip(1);
            reply::array(out, asked.len());
            for word in asked.iter() {
                match named(word) {
                    Some(command) => describe(command, out),
                    None => out.extend_from_slice(b"*-1\r\n"),
                }
            }
        }
        Some(word) if is(word, "DOCS") => {
            let asked: Vec<_> = match words.skip(1) {
                none if none.len() == 0 => DESCRIPTIONS.iter().collect(),
                some => some.iter().filter_map(named).collect(),
            };
            reply::array(out, 2 * asked.len());
            for command in asked {
                reply::bulk(out, command.name.as_bytes());
                reply::array(out, 4);
                for text in ["summary", command.summary, "group", command.group] {
                    reply::bulk(out, text.as_bytes());
                }
            }
        }
        Some(word) => unknown_subcommand("command", word, out),
    }
}

fn describe(command: &Description, out: &mut Vec<u8>) {
    reply::array(out, 6);
    reply::bulk(out, command.name.as_bytes());
    reply::integer(out, command.arity);
    reply::array(out, command.flags.len());
    command.flags.iter().for_each(|flag| reply::simple(out, flag));
    let (first, last, step) = command.keys;
    [first, last, step].into_iter().for_each(|number| reply::integer(out, number));
}

pub(super) fn config(service: &Service, words: Words<'_>, out: &mut Vec<u8>) {
    if words.len() > MOST_NAMES {
        return reply::error(out, "ERR too many names of settings in one command");
    }
    let subcommand = words.get(0).unwrap_or_default();
    if is(subcommand, "SET") {
        let text = "ERR CONFIG SET is not supported: settings are options of the program";
        return reply::error(out, text);
    }
    let asked = words.skip(1);
    if !is(subcommand, "GET") || asked.len() == 0 {
        return unknown_subcommand("config", subcommand, out);
    }
    let settings = [
        ("appendonly", "no".to_owned()),
        ("client-query-buffer-limit", service.limits.command.to_string()),
        ("databases", "1".to_owned()),
        ("maxclients", service.most_served().unwrap_or(0).to_string()),
        ("maxmemory", zero_if_none(service.meters.cap()).to_string()),
        ("maxmemory-clients", zero_if_none(service.meters.buffers().limit()).to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("proto-max-bulk-len", service.limits.word.to_string()),
        ("save", String::new()),
        ("tcp-keepalive", service.options.keepalive.map_or(0, seconds).to_string()),
        ("timeout", service.options.idle_timeout.map_or(0, seconds).to_string()),
    ];
    let is_asked = |name: &str| asked.iter().any(|word| word == b"*" || is(word, name));
    let found = || settings.iter().filter(|(name, _)| is_asked(name));
    reply::array(out, 2 * found().count());
    for (name, value) in found() {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
}

/// Redis shows 0 for no limit.
fn zero_if_none(limit: usize) -> usize {
    if limit == usize::MAX { 0 } else { limit }
}

/// In whole seconds, and at least one, because 0 would mean no limit.
fn seconds(limit: Duration) -> u64 {
    limit.as_secs().max(1)
}

/// INFO. Names and lines are those of Redis where they mean the same.
pub(super) fn info(service: &Service, asked: Words<'_>, out: &mut Vec<u8>) {
    if asked.len() > MOST_NAMES {
        return reply::error(out, "ERR too many names of sections in one command");
    }
    let everything = |word: &[u8]| ["all", "default", "everything"].iter().any(|all| is(word, all));
    let mut text = String::new();
    for (name, lines) in sections(service) {
        if asked.len() == 0 || asked.iter().any(|word| is(word, name) || everything(word)) {
            let blank = if text.is_empty() { "" } else { "\r\n" };
            let _ = write!(text, "{blank}# {name}\r\n{lines}");
        }
    }
    reply::bulk(out, text.as_bytes());
}

fn sections(service: &Service) -> [(&'static str, String); 5] {
    let (meters, uptime) = (&service.meters, service.since.elapsed().as_secs());
    let running = service.running.get();
    let port = running.and_then(|running| {
        running.addrs.iter().find_map(|addr| match addr {
            ListenAddr::Tcp(addr) => Some(addr.port()),
            ListenAddr::Unix(_) | ListenAddr::Abstract(_) => None,
        })
    });
    let (open, accepted) =
        running.map_or((0, 0), |running| (running.counts.open(), running.counts.accepted()));
    let (used, keys, cap) = (meters.used(), meters.keys(), zero_if_none(meters.cap()));
    let (clients, refusals) = (meters.buffers().used(), &service.refusals);
    let server = format!(
        "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nwakeful_version:{}\r\n\
         wakeful_loops:{}\r\nos:Linux\r\narch_bits:{}\r\nprocess_id:{}\r\ntcp_port:{}\r\n\
         uptime_in_seconds:{uptime}\r\nuptime_in_days:{}\r\n",
        env!("CARGO_PKG_VERSION"),
        service.loops(),
        usize::BITS,
        std::process::id(),
        port.unwrap_or(0),
        uptime / 86_400,
    );
    let memory = format!(
        "used_memory:{}\r\nused_memory_human:{}\r\nused_memory_dataset:{used}\r\n\
         mem_clients_normal:{clients}\r\n\
         maxmemory:{cap}\r\nmaxmemory_human:{}\r\nmaxmemory_policy:noeviction\r\n",
        used + clients,
        human(used + clients),
        human(cap),
    );
    let stats = format!(
        "total_connections_received:{accepted}\r\ntotal_commands_processed:{}\r\n\
         rejected_connections:{}\r\nexpired_keys:0\r\nevicted_keys:0\r\nevicted_clients:{}\r\n\
         keyspace_hits:{}\r\nkeyspace_misses:{}\r\n\
         client_query_buffer_limit_disconnections:{}\r\n\
         wakeful_clients_timed_out:{}\r\nwakeful_client_memory_refusals:{}\r\n",
        meters.commands(),
        refusals.connections.get(),
        refusals.evicted.get(),
        meters.hits(),
        meters.misses(),
        refusals.query_buffers.get(),
        refusals.timed_out.get(),
        meters.buffers().refused(),
    );
    let clients_section = format!(
        "connected_clients:{open}\r\nmaxclients:{}\r\nblocked_clients:0\r\n",
        service.most_served().unwrap_or(0),
    );
    let keyspace = match keys {
        0 => String::new(),
        keys => format!("db0:keys={keys},expires=0,avg_ttl=0\r\n"),
    };
    [
        ("Server", server),
        ("Clients", clients_section),
        ("Memory", memory),
        ("Stats", stats),
        ("Keyspace", keyspace),
    ]
}

/// A number of bytes in the form `1.50M`.
fn human(bytes: usize) -> String {
    let (mut number, mut units) = (bytes as f64, "BKMGT".chars());
    let mut unit = units.next();
    while number >= 1024.0 && units.as_str() != "" {
        number /= 1024.0;
        unit = units.next();
    }
    let unit = unit.unwrap_or('B');
    if unit == 'B' { format!("{bytes}B") } else { format!("{number:.2}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::resp::{Limits, Parser};

    #[test]
    fn no_answer_to_command_is_longer_than_what_is_counted_for_it() {
        let mut parser = Parser::new(Limits { word: 1000, command: 1 << 20 });
        let mut check = |line: String| {
            parser.parse(line.as_bytes()).unwrap();
            let (words, mut out) = (parser.words(line.as_bytes()).skip(1), Vec::new());
            commands(words, &mut out);
            assert!(out.len() <= longest_commands(words), "{line}: {}", out.len());
        };
        for rest in ["", " COUNT", " LIST", " INFO", " DOCS", " x"] {
            check(format!("COMMAND{rest}\r\n"));
        }
        check(format!("COMMAND {}\r\n", "\x01".repeat(1000)));
        for Description { name, .. } in &DESCRIPTIONS {
            for count in [1, 100, MOST_NAMES - 1, MOST_NAMES] {
                check(format!("COMMAND INFO{}\r\n", format!(" {name}").repeat(count)));
                check(format!("COMMAND DOCS{}\r\n", format!(" {name}").repeat(count)));
            }
        }
    }
}
