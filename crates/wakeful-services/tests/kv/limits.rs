//! How much memory, how many places and how much time connections may take.

use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use wakeful_services::kv::KvOptions;

use crate::client::{Answer, Client, GUARD, LOOPS, Service, bulk, encode, error, ok};

const MIB: usize = 1 << 20;

fn each(options: KvOptions, test: impl Fn(Service)) {
    LOOPS.iter().for_each(|loops| test(Service::start(*loops, options)));
}

/// A line of INFO.
fn info(client: &mut Client, name: &str) -> usize {
    let Answer::Bulk(Some(text)) = client.ask("INFO") else { panic!("a text") };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
}

fn wait_for(client: &mut Client, name: &str, value: usize) {
    let start = Instant::now();
    while info(client, name) != value {
        assert!(start.elapsed() < GUARD, "{name}: {}", info(client, name));
        std::thread::yield_now();
    }
}

/// The beginning of a SET of a value of `length` bytes, with `sent` of them.
fn unfinished(length: usize, sent: usize) -> Vec<u8> {
    let mut bytes = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${length}\r\n").into_bytes();
    bytes.resize(bytes.len() + sent, b'x');
    bytes
}

#[test]
fn a_command_beyond_what_all_buffers_may_take_closes_its_connection() {
    let options = KvOptions::new().max_memory_clients(5 * MIB);
    each(options, |service| {
        let (mut holder, mut other) = (service.connect(), service.connect());
        holder.send(&unfinished(4 * MIB, 3 * MIB));
        let start = Instant::now();
        while info(&mut other, "mem_clients_normal") < 3 * MIB {
            assert!(start.elapsed() < GUARD);
        }
        let mut late = service.connect();
        // It may be refused while it writes.
        let _ = late.stream().write_all(&unfinished(4 * MIB, 4 * MIB - 1));
        let refused = "OOM command not read when client buffers > 'maxmemory-clients'.";
        assert_eq!(late.answer(), error(refused));
        assert!(late.is_closed());
        assert_eq!(info(&mut other, "evicted_clients"), 1);
        assert_eq!(other.ask("SET small v"), ok(), "others are served");
        assert_eq!(other.ask("GET small"), bulk("v"));
        drop(holder);
        wait_for(&mut other, "mem_clients_normal", 0);
        assert_eq!(late_again(&service), ok(), "there is room again");
    });
}

fn late_again(service: &Service) -> Answer {
    let mut client = service.connect();
    client.send(&unfinished(MIB, MIB));
    client.send(b"\r\n");
    client.answer()
}

#[test]
fn a_command_beyond_the_query_buffer_limit_closes_its_connection() {
    let options = KvOptions::new().client_query_buffer_limit(MIB);
    each(options, |service| {
        let mut client = service.connect();
        // A key and a value of less, which are more together.
        let key = vec![b'k'; 600_000];
        client.send(
            &[b"*3\r\n$3\r\nSET\r\n$600000\r\n", key.as_slice(), b"\r\n$600000\r\n"].concat(),
        );
        let refused = "ERR Protocol error: a command may have 1048576 bytes";
        assert_eq!(client.answer(), error(refused));
        assert!(client.is_closed());
        let mut other = service.connect();
        assert_eq!(info(&mut other, "client_query_buffer_limit_disconnections"), 1);
    });
}

#[test]
fn a_command_of_many_words_beyond_the_query_buffer_limit_closes_its_connection_wherever_it_is_cut()
{
    let word = b"$0000000001\r\nk\r\n";
    let options = KvOptions::new().client_query_buffer_limit(MIB);
    each(options, |service| {
        for first in 1..=word.len() {
            let mut command = format!("*200001\r\n$3\r\nDEL\r\n${first}\r\n").into_bytes();
            command.resize(command.len() + first, b'k');
            command.extend_from_slice(b"\r\n");
            command.extend_from_slice(&word.repeat(MIB / word.len()));
            let mut client = service.connect();
            // It may be refused while it writes.
            let _ = client.stream().write_all(&command);
            let refused = "ERR Protocol error: a command may have 1048576 bytes";
            assert_eq!(client.answer(), error(refused), "{first}");
            assert!(client.is_closed());
            let mut other = service.connect();
            assert_eq!(info(&mut other, "client_query_buffer_limit_disconnections"), first);
        }
    });
}

#[test]
fn answers_that_nobody_reads_take_no_more_than_they_may() {
    let options = KvOptions::new().max_memory_clients(40 * MIB);
    each(options, |service| {
        let mut client = service.connect();
        let value = vec![b'x'; 8 * MIB];
        assert_eq!(client.ask_words(&[b"SET".as_slice(), b"k", &value]), ok());
        let mut slow: Vec<_> = (0..20).map(|_| service.connect()).collect();
        slow.iter_mut().for_each(|client| client.send(b"GET k\r\n"));
        let start = Instant::now();
        while info(&mut client, "wakeful_client_memory_refusals") == 0 {
            assert!(start.elapsed() < GUARD);
        }
        assert!(info(&mut client, "mem_clients_normal") <= 40 * MIB);
        assert_eq!(client.ask("SET small v"), ok());
        assert_eq!(client.ask("GET small"), bulk("v"));
        let refused = error("OOM answer not allowed when client buffers > 'maxmemory-clients'.");
        let answers: Vec<_> = slow.iter_mut().map(Client::answer).collect();
        assert!(answers.iter().all(|answer| *answer == refused || *answer == bulk(&value)));
        assert!(answers.contains(&refused) && answers.contains(&bulk(&value)));
        wait_for(&mut client, "mem_clients_normal", 0);
        assert_eq!(slow[0].ask("PING"), Answer::Simple("PONG".to_owned()), "it is still open");
    });
}

#[test]
fn answers_that_are_written_in_parts_for_lack_of_memory_are_no_refusals() {
    // Each loop's answers are small, and those of all loops together are not.
    let service = Service::start(8, KvOptions::new().max_memory_clients(20 * 1024));
    let mut client = service.connect();
    let value = vec![b'x'; 1000];
    let names: Vec<_> = (0..40).map(|number| format!("key:{number}")).collect();
    for name in &names {
        assert_eq!(client.ask_words(&[b"SET", name.as_bytes(), &value]), ok());
    }
    for _ in 0..10 {
        client.send(&names.iter().flat_map(|name| encode(&["GET", name])).collect::<Vec<_>>());
        names.iter().for_each(|_| assert_eq!(client.answer(), bulk(&value)));
    }
    assert_eq!(info(&mut client, "wakeful_client_memory_refusals"), 0);
}

#[test]
fn a_long_description_of_commands_is_counted() {
    let command = format!("COMMAND DOCS{}", " flushall".repeat(1023));
    each(KvOptions::new().max_memory_clients(64 * 1024), |service| {
        let mut client = service.connect();
        let refused = error("OOM answer not allowed when client buffers > 'maxmemory-clients'.");
        assert_eq!(client.ask(&command), refused);
        assert_eq!(info(&mut client, "wakeful_client_memory_refusals"), 1);
        assert!(matches!(client.ask("COMMAND DOCS"), Answer::Array(Some(_))));
    });
    each(KvOptions::new().max_memory_clients(MIB), |service| {
        let mut client = service.connect();
        let Answer::Array(Some(docs)) = client.ask(&command) else { panic!("an array") };
        assert_eq!(docs.len(), 2 * 1023);
        wait_for(&mut client, "mem_clients_normal", 0);
    });
}

#[test]
fn connections_beyond_the_limit_are_told_and_closed() {
    let options = KvOptions::new().max_connections(2);
    each(options, |service| {
        let (mut one, mut two) = (service.connect(), service.connect());
        let pong = Answer::Simple("PONG".to_owned());
        assert_eq!((one.ask("PING"), two.ask("PING")), (pong.clone(), pong.clone()));
        let mut third = service.connect();
        assert_eq!(third.answer(), error("ERR max number of clients reached"));
        assert!(third.is_closed());
        assert_eq!(info(&mut one, "rejected_connections"), 1);
        drop(two);
        wait_for(&mut one, "connected_clients", 1);
        assert_eq!(service.connect().ask("PING"), pong);
    });
}

#[test]
fn a_refused_connection_reads_the_reason_whatever_it_sends_and_takes_no_place() {
    each(KvOptions::new().max_connections(1), |service| {
        let mut first = service.connect();
        assert_eq!(first.ask("PING"), Answer::Simple("PONG".to_owned()));
        let mut refused: Vec<_> = (0..20).map(|_| service.connect()).collect();
        for client in &mut refused {
            client.send(&b"PING\r\n".repeat(1000));
        }
        for client in &mut refused {
            assert_eq!(client.answer(), error("ERR max number of clients reached"));
            assert!(client.is_closed(), "and not reset");
        }
        drop(first);
        // The refused ones have not closed their side.
        let start = Instant::now();
        while service.connect().ask("PING") != Answer::Simple("PONG".to_owned()) {
            assert!(start.elapsed() < GUARD);
        }
        drop(refused);
    });
}

#[test]
fn an_idle_connection_closes_and_a_pooled_one_stays_unless_asked() {
    let limit = Some(Duration::from_secs(1));
    each(KvOptions::new().idle_timeout(limit), |service| {
        let mut client = service.connect();
        assert_eq!(client.ask("SET k v"), ok());
        assert!(client.is_closed());
        let mut other = service.connect();
        wait_for(&mut other, "wakeful_clients_timed_out", 1);
    });
    let limit = Some(Duration::from_millis(100));
    each(KvOptions::new().stall_timeout(limit), |service| {
        let (mut idle, mut stalled) = (service.connect(), service.connect());
        assert_eq!(idle.ask("SET k v"), ok());
        stalled.send(b"*2\r\n$3\r\nGET\r\n");
        assert!(stalled.is_closed());
        assert_eq!(idle.ask("GET k"), bulk("v"));
        wait_for(&mut idle, "wakeful_clients_timed_out", 1);
    });
}

#[test]
fn a_client_that_sends_a_command_by_single_bytes_is_closed() {
    let limit = Some(Duration::from_millis(500));
    each(KvOptions::new().stall_timeout(limit), |service| {
        let mut client = service.connect();
        client.send(&unfinished(MIB, 0));
        let start = Instant::now();
        while client.stream().write_all(b"x").is_ok() {
            assert!(start.elapsed() < GUARD);
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut other = service.connect();
        wait_for(&mut other, "wakeful_clients_timed_out", 1);
    });
}

#[test]
fn a_client_that_reads_nothing_for_too_long_is_closed() {
    let limit = Some(Duration::from_millis(200));
    each(KvOptions::new().stall_timeout(limit), |service| {
        let (mut slow, mut other) = (service.connect(), service.connect());
        let value = vec![b'x'; MIB];
        assert_eq!(other.ask_words(&[b"SET".as_slice(), b"k", &value]), ok());
        slow.stream().set_write_timeout(Some(Duration::from_millis(10))).unwrap();
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < GUARD);
            match slow.stream().write_all(&b"GET k\r\n".repeat(100)) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        wait_for(&mut other, "wakeful_clients_timed_out", 1);
        wait_for(&mut other, "mem_clients_normal", 0);
    });
}

#[test]
fn a_limit_of_0_is_none() {
    let options = KvOptions::new().max_memory(None).max_connections(None);
    each(options, |service| {
        let mut client = service.connect();
        let value = vec![b'x'; MIB];
        assert_eq!(client.ask_words(&[b"SET".as_slice(), b"k", &value]), ok());
        for name in ["maxmemory", "maxmemory-clients", "maxclients", "timeout"] {
            let answer = client.ask(&format!("CONFIG GET {name}"));
            assert_eq!(answer, Answer::Array(Some(vec![bulk(name), bulk("0")])), "{name}");
        }
        assert_eq!(info(&mut client, "maxmemory"), 0);
    });
}
