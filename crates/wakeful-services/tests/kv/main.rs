//! The key-value service through sockets, with one loop and with several.

mod client;
mod limits;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use wakeful_services::kv::KvOptions;

use client::{Answer, GUARD, LOOPS, NULL, Service, bulk, encode, error, ok};

fn each(test: impl Fn(Service)) {
    LOOPS.iter().for_each(|loops| test(Service::start(*loops, KvOptions::default())));
}

#[test]
fn every_command_answers_as_in_redis() {
    each(|service| {
        let mut client = service.connect();
        let text = |text: &str| Answer::Simple(text.to_owned());
        for (command, answer) in [
            ("PING", text("PONG")),
            ("PING hello", bulk("hello")),
            ("ECHO hello", bulk("hello")),
            ("GET k", NULL),
            ("SET k v", ok()),
            ("GET k", bulk("v")),
            ("SET k w NX", NULL),
            ("SET k w XX GET", bulk("v")),
            ("SET k w EX 10", error("ERR option 'EX' is not supported: keys do not expire here")),
            ("INCR n", Answer::Integer(1)),
            ("INCR n", Answer::Integer(2)),
            ("INCRBY n 40", Answer::Integer(42)),
            ("DECR n", Answer::Integer(41)),
            ("DECRBY n -1", Answer::Integer(42)),
            ("INCRBY n x", error("ERR value is not an integer or out of range")),
            ("DECRBY n -9223372036854775808", error("ERR increment or decrement would overflow")),
            ("INCR k", error("ERR value is not an integer or out of range")),
            ("MSET a 1 b 2 c 3 d 4", ok()),
            ("EXISTS a b c d a x", Answer::Integer(5)),
            (
                "MGET a x b c d",
                Answer::Array(Some(vec![bulk("1"), NULL, bulk("2"), bulk("3"), bulk("4")])),
            ),
            ("DBSIZE", Answer::Integer(6)),
            ("DEL a b x", Answer::Integer(2)),
            ("DBSIZE", Answer::Integer(4)),
            ("SELECT 0", ok()),
            ("SELECT 1", error("ERR DB index is out of range: there is database 0 only")),
            ("GET", error("ERR wrong number of arguments for 'get' command")),
            ("HELLO 3", error("NOPROTO unsupported protocol version")),
            ("CLIENT GETNAME", NULL),
            ("CLIENT SETNAME me", ok()),
            ("CLIENT SETINFO LIB-NAME test", ok()),
            ("CLIENT GETNAME", bulk("me")),
            ("CLIENT LIST", error("ERR unknown subcommand 'LIST' of 'client'")),
            ("CONFIG GET save", Answer::Array(Some(vec![bulk("save"), bulk("")]))),
            (
                "CONFIG GET maxmemory",
                Answer::Array(Some(vec![bulk("maxmemory"), bulk("1073741824")])),
            ),
            ("CONFIG GET nothing", Answer::Array(Some(Vec::new()))),
            (
                "CONFIG SET save x",
                error("ERR CONFIG SET is not supported: settings are options of the program"),
            ),
            ("COMMAND COUNT", Answer::Integer(21)),
            ("LPUSH l x", error("ERR unknown command 'LPUSH', with args beginning with: 'l' 'x' ")),
            ("FLUSHALL", ok()),
            ("DBSIZE", Answer::Integer(0)),
        ] {
            assert_eq!(client.ask(command), answer, "{command}");
        }
        let Answer::Array(Some(commands)) = client.ask("COMMAND") else { panic!("an array") };
        assert_eq!(commands.len(), 21);
        let many = format!("COMMAND DOCS{}", " get".repeat(2000));
        let many = [many, format!("CONFIG GET{}", " save".repeat(2000))];
        for many in many.into_iter().chain([format!("INFO{}", " stats".repeat(2000))]) {
            let answer = client.ask(&many);
            assert!(matches!(answer, Answer::Error(text) if text.contains("too many")));
        }
        let Answer::Array(Some(docs)) = client.ask("COMMAND DOCS get") else { panic!("an array") };
        assert_eq!(docs[0], bulk("get"));
        let Answer::Array(Some(hello)) = client.ask("HELLO 2") else { panic!("an array") };
        assert_eq!(hello[4..6], [bulk("proto"), Answer::Integer(2)]);
        assert_eq!(client.ask("QUIT"), ok());
        assert!(client.is_closed());
        let mut client = service.connect();
        client.send(b"PING\r\nSET inline 1\r\nGET inline\r\n");
        assert_eq!(client.answer(), text("PONG"));
        assert_eq!(client.answer(), ok());
        assert_eq!(client.answer(), bulk("1"));
    });
}

#[test]
fn commands_that_come_with_a_quit_are_counted() {
    each(|service| {
        let mut client = service.connect();
        client.send(b"PING\r\nPING\r\nQUIT\r\n");
        let pong = || Answer::Simple("PONG".to_owned());
        for answer in [pong(), pong(), ok()] {
            assert_eq!(client.answer(), answer);
        }
        assert!(client.is_closed());
        let Answer::Bulk(Some(info)) = service.connect().ask("INFO stats") else {
            panic!("a text")
        };
        let info = String::from_utf8(info).unwrap();
        assert!(info.lines().any(|line| line == "total_commands_processed:4"), "{info}");
    });
}

#[test]
fn info_counts_what_happened() {
    each(|service| {
        let (mut client, mut other) = (service.connect(), service.connect());
        assert_eq!(other.ask("SET a 1"), ok());
        // In one write: INFO must count the commands before it.
        client.send(b"SET b 1\r\nSET c 1\r\nSET d 1\r\nGET a\r\nGET x\r\nINFO\r\nINFO memory\r\n");
        for answer in [ok(), ok(), ok(), bulk("1"), NULL] {
            assert_eq!(client.answer(), answer);
        }
        let mut section = || match client.answer() {
            Answer::Bulk(Some(text)) => String::from_utf8(text).unwrap(),
            other => panic!("{other:?}"),
        };
        let all = section();
        for line in [
            "# Server",
            "redis_version:7.0.0",
            "# Clients",
            "connected_clients:2",
            "# Memory",
            "maxmemory:1073741824",
            "# Stats",
            "total_connections_received:2",
            "total_commands_processed:7",
            "keyspace_hits:1",
            "keyspace_misses:1",
            "# Keyspace",
            "db0:keys=4,expires=0,avg_ttl=0",
        ] {
            assert!(all.lines().any(|have| have == line), "{line}: {all}");
        }
        assert!(all.contains(&format!("tcp_port:{}\r\n", service.addr.port())));
        let memory = section();
        assert!(memory.starts_with("# Memory\r\nused_memory:") && !memory.contains("# Stats"));
    });
}

/// A command of a mix that touches all shards.
fn mixed(number: usize) -> String {
    let key = |offset: usize| format!("k{}", (number + offset) * 7 % 53);
    match number % 8 {
        0 => format!("SET {} {number}", key(0)),
        1 => format!("GET {}", key(1)),
        2 => format!("INCR counter{}", number % 5),
        3 => format!("MSET {} a{number} {} b{number} {} c{number}", key(0), key(1), key(2)),
        4 => format!("MGET {} {} {}", key(0), key(2), key(3)),
        5 => format!("DEL {} {} {}", key(0), key(5), key(9)),
        6 => format!("EXISTS {} {} {}", key(0), key(1), key(2)),
        _ => "DBSIZE".to_owned(),
    }
}

/// What one loop would answer.
fn expected(map: &mut BTreeMap<String, String>, command: &str) -> Answer {
    let mut words = command.split(' ');
    let name = words.next().unwrap();
    let rest: Vec<_> = words.map(str::to_owned).collect();
    let get = |map: &BTreeMap<String, String>, key: &String| map.get(key).map_or(NULL, bulk);
    match name {
        "SET" | "MSET" => {
            rest.chunks(2).for_each(|pair| drop(map.insert(pair[0].clone(), pair[1].clone())));
            ok()
        }
        "GET" => get(map, &rest[0]),
        "INCR" => {
            let number = map.get(&rest[0]).map_or(0, |text| text.parse::<i64>().unwrap()) + 1;
            map.insert(rest[0].clone(), number.to_string());
            Answer::Integer(number)
        }
        "MGET" => Answer::Array(Some(rest.iter().map(|key| get(map, key)).collect())),
        "DEL" => {
            Answer::Integer(rest.iter().filter(|key| map.remove(*key).is_some()).count() as i64)
        }
        "EXISTS" => {
            Answer::Integer(rest.iter().filter(|key| map.contains_key(*key)).count() as i64)
        }
        _ => Answer::Integer(map.len() as i64),
    }
}

#[test]
fn a_pipeline_over_all_shards_is_answered_in_order() {
    each(|service| {
        for pieces in [1, 37, 100_000] {
            let mut client = service.connect();
            assert_eq!(client.ask("FLUSHALL"), ok());
            let commands: Vec<_> = (0..4_000).map(mixed).collect();
            let line = |command: &String| encode(&command.split(' ').collect::<Vec<_>>());
            let bytes: Vec<u8> = commands.iter().flat_map(line).collect();
            let mut writing = client.stream().try_clone().unwrap();
            // As large pieces, as small ones, and a first part byte by byte.
            let writer = std::thread::spawn(move || {
                let (first, rest) = bytes.split_at(if pieces == 1 { 3_000 } else { 0 });
                first.iter().for_each(|byte| writing.write_all(&[*byte]).unwrap());
                let piece = if pieces == 1 { rest.len() } else { pieces };
                rest.chunks(piece).for_each(|piece| writing.write_all(piece).unwrap());
            });
            let mut map = BTreeMap::new();
            for (number, command) in commands.iter().enumerate() {
                assert_eq!(client.answer(), expected(&mut map, command), "{number}: {command}");
            }
            writer.join().unwrap();
        }
    });
}

#[test]
fn what_connections_on_all_loops_add_up_is_the_sum() {
    each(|service| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let mut client = service.connect();
                std::thread::spawn(move || {
                    for round in 0..50 {
                        let bytes: Vec<u8> = (0..20)
                            .flat_map(|key| encode(&["INCR".to_owned(), format!("n{key}")]))
                            .collect();
                        client.send(&bytes);
                        for _ in 0..20 {
                            let answer = client.answer();
                            let at_least = |n: i64| n > round;
                            assert!(matches!(answer, Answer::Integer(n) if at_least(n)));
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut client = service.connect();
        for key in 0..20 {
            assert_eq!(client.ask(&format!("GET n{key}")), bulk("400"));
        }
    });
}

#[test]
fn large_values_go_through_and_larger_ones_are_refused() {
    each(|service| {
        let value = vec![b'x'; 16 << 20];
        let mut client = service.connect();
        for key in 0..4 {
            let key = format!("large{key}");
            assert_eq!(client.ask_words(&[b"SET", key.as_bytes(), &value]), ok());
            assert!(client.ask(&format!("GET {key}")) == bulk(&value));
        }
        let mut refused = service.connect();
        refused.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16777217\r\n");
        assert_eq!(refused.answer(), error("ERR Protocol error: invalid bulk length"));
        assert!(refused.is_closed());
        assert_eq!(client.ask("GET k"), NULL);
    });
}

/// A buffer of 64 KiB holds such a command, and exactly 16 KiB of the next one.
#[test]
fn a_pipeline_of_large_commands_of_any_length_goes_on() {
    each(|service| {
        let mut client = service.connect();
        for less in [0, 1, 16 << 10] {
            let value = vec![b'x'; 49_152 - 30 - less];
            let set = [
                format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).as_bytes(),
                &value,
                b"\r\n",
            ]
            .concat();
            let thirty = set.repeat(30);
            for _ in 0..10 {
                client.send(&thirty);
                (0..30).for_each(|_| assert_eq!(client.answer(), ok()));
            }
        }
    });
}

#[test]
fn a_client_that_is_refused_reads_why_though_it_goes_on_sending() {
    each(|service| {
        let mut good = service.connect();
        let mut bad = service.connect();
        let endless = vec![b'x'; 1 << 20];
        bad.send(&[b"SET k v\r\nGET k\r\n", endless.as_slice()].concat());
        assert_eq!(bad.answer(), ok(), "what came before is done");
        assert_eq!(bad.answer(), bulk("v"));
        assert_eq!(bad.answer(), error("ERR Protocol error: too big inline request"));
        assert!(bad.is_closed());
        assert_eq!(good.ask("GET k"), bulk("v"));
        let mut browser = service.connect();
        browser.send(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET k hacked\r\n");
        assert!(browser.is_closed());
        assert_eq!(good.ask("GET k"), bulk("v"));
    });
}

#[test]
fn out_of_memory_is_an_answer_and_no_end() {
    for loops in LOOPS {
        let service =
            Service::start(loops, KvOptions::new().max_memory(1 << 20).max_value(1 << 20));
        let mut client = service.connect();
        let value = vec![b'x'; 10_000];
        let mut set =
            |number: usize| client.ask_words(&[b"SET", format!("k{number}").as_bytes(), &value]);
        let refused = (0..1_000).find(|number| set(*number) != ok()).expect("a cap");
        // Entries of 10,000 bytes and a little in a MiB.
        assert!((95..=104).contains(&refused), "{refused}");
        let oom = error("OOM command not allowed when used memory > 'maxmemory'.");
        assert_eq!(set(refused), oom);
        assert_eq!(set(0), ok(), "no more than before");
        let large = vec![b'x'; 20_000];
        let words: [&[u8]; 5] = [b"MSET", b"a", &large, b"b", &large];
        assert_eq!(client.ask_words(&words), oom);
        assert_eq!(client.ask("GET a"), NULL);
        assert!(client.ask("GET k0") == bulk(&value));
        let all: Vec<_> = (0..refused).map(|number| format!("k{number}")).collect();
        let removed = client.ask(&format!("DEL {}", all.join(" ")));
        assert_eq!(removed, Answer::Integer(refused as i64));
        assert_eq!(client.ask_words(&words), ok());
        assert_eq!(client.ask("FLUSHALL"), ok());
        let Answer::Bulk(Some(text)) = client.ask("INFO memory") else { panic!("a text") };
        assert!(String::from_utf8(text).unwrap().contains("used_memory:0\r\n"));
    }
}

/// The resident set of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

#[test]
fn who_does_not_read_is_no_longer_read_from() {
    each(|service| {
        let (mut slow, mut other) = (service.connect(), service.connect());
        let value = vec![b'x'; 1 << 20];
        let names: Vec<_> = (0..16).map(|key| format!("large{key}")).collect();
        for name in &names {
            assert_eq!(other.ask_words(&[b"SET", name.as_bytes(), &value]), ok());
        }
        // Some hundred GiB are asked for.
        let questions: Vec<u8> = names.iter().flat_map(|name| encode(&["GET", name])).collect();
        let mget: Vec<&str> =
            [&["MGET"], names.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat();
        let questions = [questions, encode(&mget)].concat().repeat(100);
        slow.stream().set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut sent = 0_usize;
        let stopped = loop {
            match slow.stream().write(&questions[sent % questions.len()..]) {
                Ok(written) => sent += written,
                Err(error) => break error,
            }
            assert!(sent < 64 << 20, "it goes on reading");
        };
        assert_eq!(stopped.kind(), ErrorKind::WouldBlock);
        assert!(resident() < 400 << 20, "{} MiB", resident() >> 20);
        for name in &names {
            assert!(other.ask(&format!("GET {name}")) == bulk(&value));
        }
        for _ in 0..40 {
            let answer = slow.answer();
            let whole = |answer: &Answer| *answer == bulk(&value);
            let fine = match &answer {
                Answer::Array(Some(answers)) => answers.iter().all(whole),
                answer => whole(answer),
            };
            assert!(fine);
        }
    });
}

#[test]
fn keys_of_a_loop_that_has_ended_are_an_error_and_the_others_go_on() {
    let service = Service::start(4, KvOptions::default());
    let gone = &service.serving.handles()[3];
    gone.stop();
    let start = Instant::now();
    while gone.post(|| ()).is_ok() {
        assert!(start.elapsed() < GUARD);
        std::thread::yield_now();
    }
    // They arrive in one read, so each command has others beside it.
    let mut client = service.connect();
    let bytes: Vec<u8> = (0..200)
        .flat_map(|key| encode(&["SET".to_owned(), format!("k{key}"), "v".to_owned()]))
        .collect();
    client.send(&bytes);
    let lost = error("ERR the loop that owns the key has ended");
    let (mut set, mut failed) = (Vec::new(), Vec::new());
    for key in 0..200 {
        match client.answer() {
            answer if answer == ok() => set.push(format!("k{key}")),
            answer => {
                assert_eq!(answer, lost);
                failed.push(format!("k{key}"));
            }
        }
    }
    assert!(set.len() > 100 && failed.len() > 20, "{} {}", set.len(), failed.len());
    assert_eq!(client.ask(&format!("EXISTS {}", set.join(" "))), Answer::Integer(set.len() as i64));
    assert_eq!(client.ask(&format!("DEL {} {}", set[0], failed[0])), lost);
    let mixed = client.ask(&format!("MGET {} {} {}", set[1], failed[0], set[2]));
    assert_eq!(mixed, Answer::Array(Some(vec![bulk("v"), lost.clone(), bulk("v")])));
    assert_eq!(client.ask(&format!("MSET {} 1 {} 1", failed[0], set[1])), lost);
    assert_eq!(client.ask("FLUSHALL"), lost);
}

#[test]
fn it_drains_with_idle_connections_and_answers_what_is_on_its_way() {
    each(|service| {
        let mut clients: Vec<_> = (0..8).map(|_| service.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.ask(&format!("SET k{number} v")), ok());
        }
        // A part of a command: its connection stays until the rest has come, and so do the shards.
        let mut late = service.connect();
        late.send(b"PING\r\n*9\r\n$4\r\nMGET\r\n");
        assert_eq!(late.answer(), Answer::Simple("PONG".to_owned()));
        let draining = std::thread::spawn(move || service.serving.shutdown(GUARD));
        assert!(clients.iter_mut().all(client::Client::is_closed));
        (0..8).for_each(|number| late.send(format!("$2\r\nk{number}\r\n").as_bytes()));
        assert_eq!(late.answer(), Answer::Array(Some(vec![bulk("v"); 8])));
        assert!(late.is_closed());
        assert_eq!(draining.join().unwrap().unwrap(), 0);
    });
}

fn values(answer: Answer) -> Vec<Answer> {
    let Answer::Array(Some(values)) = answer else { panic!("an array: {answer:?}") };
    values
}

/// The last command of each batch is the one after which other connections have their turn.
#[test]
fn with_one_loop_no_command_runs_between_the_keys_of_another_one() {
    let service = Service::start(1, KvOptions::default());
    assert_eq!(service.connect().ask("MSET a 0 b 0"), ok());
    let has_ended = AtomicBool::new(false);
    let torn = thread::scope(|scope| {
        for writer in 0..4 {
            let mut client = service.connect();
            let commands = format!("MSET a {writer} b {writer} c 1 d 1\r\nDEL c d\r\n").repeat(20);
            let has_ended = &has_ended;
            scope.spawn(move || {
                while !has_ended.load(Ordering::Relaxed) {
                    client.send(commands.as_bytes());
                    (0..40).for_each(|_| drop(client.answer()));
                }
            });
        }
        let mut client = service.connect();
        let mut torn = Vec::new();
        for command in ["MGET a b", "EXISTS c d", "DEL c d"] {
            let batch = "PING\r\n".repeat(1023) + command + "\r\n";
            for _ in 0..200 {
                client.send(batch.as_bytes());
                (0..1023).for_each(|_| drop(client.answer()));
                let answer = client.answer();
                let is_whole = match &answer {
                    Answer::Array(Some(values)) => values[0] == values[1],
                    Answer::Integer(number) => number % 2 == 0,
                    _ => false,
                };
                torn.extend((!is_whole).then_some((command, answer)));
            }
        }
        has_ended.store(true, Ordering::Relaxed);
        torn
    });
    assert!(torn.is_empty(), "{} {:?}", torn.len(), torn[0]);
}

/// Its answer is short, and comes behind another one that is nearly long enough to be written.
#[test]
fn with_one_loop_an_mget_behind_other_answers_is_whole_though_nobody_reads_them() {
    const TIMES: usize = 1000;
    let service = Service::start(1, KvOptions::default());
    let (mut slow, mut other) = (service.connect(), service.connect());
    let large = vec![b'x'; 32 * 1024 - 18];
    assert_eq!(other.ask_words(&[b"SET", b"large".as_slice(), &large]), ok());
    assert_eq!(other.ask("MSET a 0 b 0"), ok());
    // More than sockets take.
    slow.send("GET large\r\nMGET a b\r\n".repeat(TIMES).as_bytes());
    for number in 0..2000 {
        let number = number % 10;
        assert_eq!(other.ask(&format!("MSET a {number} b {number}")), ok());
    }
    for number in 0..TIMES {
        assert!(slow.answer() == bulk(&large));
        let values = values(slow.answer());
        assert_eq!(values[0], values[1], "{number}");
    }
}
