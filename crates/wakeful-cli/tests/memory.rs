//! What `wakeful serve` takes of memory, whatever connections send and do not read, and what it
//! does if there is none.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{GUARD, PROGRAM, Service};

const MIB: usize = 1 << 20;
const CONNECTIONS: usize = 150;

/// The largest resident set so far, in bytes.
fn peak(service: &Service) -> usize {
    let path = format!("/proc/{}/status", service.child.id());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

fn connect(addr: &str) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    stream
}

/// Connections that each send `bytes`, as far as they come. They stay open.
fn flood(addr: &str, bytes: &[u8]) -> Vec<TcpStream> {
    let send = |_| {
        let mut stream = connect(addr);
        // Refused on the way, or not read from any more.
        let _ = stream.write_all(bytes);
        stream
    };
    (0..CONNECTIONS).map(send).collect()
}

fn ask(stream: &mut TcpStream, question: &[u8], answer: &str) {
    stream.write_all(question).unwrap();
    let mut have = vec![0; answer.len()];
    stream.read_exact(&mut have).unwrap();
    assert_eq!(String::from_utf8_lossy(&have), answer);
}

fn set(length: usize) -> Vec<u8> {
    let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${length}\r\n");
    [head.as_bytes(), &vec![b'x'; length], b"\r\n"].concat()
}

#[test]
fn unfinished_commands_and_unread_answers_of_kv_are_bounded() {
    // 64 MiB for keys and values, and four commands of 17 MiB for buffers.
    let stated = (64 + 4 * 17) * MIB;
    let mut service = Service::start(&["kv", "--listen", "127.0.0.1:0", "--max-memory", "64MiB"]);
    let addr = service.behind("listening on ");
    let mut other = connect(&addr);
    let whole = set(16 * MIB);
    let unfinished = flood(&addr, &whole[..whole.len() - 1]);
    ask(&mut other, b"SET a 1\r\nGET a\r\n", "+OK\r\n$1\r\n1\r\n");
    assert!(peak(&service) < 2 * stated, "{} MiB", peak(&service) / MIB);
    drop(unfinished);
    // Their buffers are freed when the service hears of it.
    let start = Instant::now();
    loop {
        let mut stream = connect(&addr);
        stream.set_write_timeout(Some(GUARD)).unwrap();
        let mut answer = [0; 5];
        let is_set = stream.write_all(&whole).is_ok() && stream.read_exact(&mut answer).is_ok();
        if is_set && answer == *b"+OK\r\n" {
            break;
        }
        assert!(start.elapsed() < GUARD);
    }
    let unread = flood(&addr, &b"GET k\r\n".repeat(100));
    ask(&mut other, b"GET a\r\n", "$1\r\n1\r\n");
    assert!(peak(&service) < 2 * stated, "{} MiB", peak(&service) / MIB);
    drop(unread);
}

#[test]
fn unfinished_frames_of_echo_are_bounded() {
    let arguments = ["echo", "--listen", "127.0.0.1:0", "--max-memory", "64MiB"];
    let mut service = Service::start(&arguments);
    let addr = service.behind("listening on ");
    let mut other = connect(&addr);
    let mut frame = vec![b'x'; 4 + 16 * MIB - 1];
    frame[..4].copy_from_slice(&(16 * MIB as u32).to_be_bytes());
    let unfinished = flood(&addr, &frame);
    ask(&mut other, b"\0\0\0\x05hello", "\0\0\0\x05hello");
    assert!(peak(&service) < 256 * MIB, "{} MiB", peak(&service) / MIB);
    drop(unfinished);
}

#[test]
fn a_command_that_came_while_the_process_was_stopped_is_answered() {
    let arguments = ["kv", "--listen", "127.0.0.1:0", "--stall-timeout", "1"];
    let mut service = Service::start(&arguments);
    let addr = service.behind("listening on ");
    let mut stream = connect(&addr);
    ask(&mut stream, b"SET a 1\r\n*2\r\n$3\r\nGET\r\n", "+OK\r\n");
    service.signal("-STOP");
    stream.write_all(b"$1\r\na\r\n").unwrap();
    // Longer than the limit.
    thread::sleep(Duration::from_millis(1500));
    service.signal("-CONT");
    ask(&mut stream, b"", "$1\r\n1\r\n");
}

/// What the process has mapped, in bytes: what `RLIMIT_AS` limits.
fn mapped(service: &Service) -> usize {
    let path = format!("/proc/{}/statm", service.child.id());
    let pages = std::fs::read_to_string(path).unwrap();
    pages.split(' ').next().unwrap().parse::<usize>().unwrap() * 4096
}

/// Lets the process map `more` bytes beyond what it has mapped now, and no more.
fn limit_to_more(service: &Service, more: usize) {
    let (limit, pid) = (mapped(service) + more, service.child.id().to_string());
    let prlimit = Command::new("prlimit").args([&format!("--as={limit}"), "--pid", &pid]).status();
    assert!(prlimit.unwrap().success());
}

#[test]
fn values_for_which_the_process_has_no_memory_are_refused() {
    let mut service = Service::start(&["kv", "--listen", "127.0.0.1:0", "--max-memory", "0"]);
    let addr = service.behind("listening on ");
    let mut stream = connect(&addr);
    ask(&mut stream, b"SET a 1\r\n", "+OK\r\n");
    limit_to_more(&service, 300 * MIB);
    // One after the other takes 16 MiB: not all of them fit, and what does not is refused.
    let mut refused = 0;
    for number in 0..30 {
        let value = vec![b'x'; 16 * MIB];
        let head = format!("*3\r\n$3\r\nSET\r\n$2\r\n{number:02}\r\n${}\r\n", value.len());
        let mut writer = connect(&addr);
        writer.set_write_timeout(Some(GUARD)).unwrap();
        // Its query buffer may be what there is no memory for: then the answer comes before all is
        // sent.
        let _ = writer.write_all(&[head.as_bytes(), &value, b"\r\n"].concat());
        let mut answer = [0; 4];
        writer.read_exact(&mut answer).unwrap();
        assert!([*b"+OK\r", *b"-OOM"].contains(&answer), "{}", String::from_utf8_lossy(&answer));
        refused += u32::from(answer == *b"-OOM");
    }
    assert!((10..30).contains(&refused), "{refused}");
    ask(&mut stream, b"GET a\r\nDEL 00\r\nSET a 2\r\n", "$1\r\n1\r\n:1\r\n+OK\r\n");
}

/// Small values: what ends is the memory for an answer, a table, a buffer.
#[test]
fn small_values_that_use_up_all_memory_are_refused_and_end_nothing() {
    let arguments = ["kv", "--listen", "127.0.0.1:0", "--max-memory", "0"];
    for length in [50, 200] {
        let mut service = Service::start(&arguments);
        let addr = service.behind("listening on ");
        let mut stream = connect(&addr);
        stream.set_write_timeout(Some(GUARD)).unwrap();
        ask(&mut stream, b"SET a 1\r\n", "+OK\r\n");
        limit_to_more(&service, 100 * MIB);
        let value = "x".repeat(length);
        let mut refused = 0;
        // 2,000,000 of them would take more than there is.
        for batch in 0..2_000 {
            let key = |number| format!("SET {batch:04}{number:03} {value}\r\n");
            let commands: String = (0..1_000).map(key).collect();
            stream.write_all(commands.as_bytes()).unwrap();
            let mut answers = BufReader::new(&stream);
            for _ in 0..1_000 {
                let answer = line(&mut answers);
                assert!(answer == "+OK" || answer.starts_with("-OOM"), "{answer:?}");
                refused += u32::from(answer != "+OK");
            }
            if refused > 20_000 {
                break;
            }
        }
        assert!(refused > 20_000, "{refused}");
        ask(&mut stream, b"GET a\r\n", "$1\r\n1\r\n");
        // Others come, and what is freed can be used again.
        let mut other = connect(&addr);
        ask(&mut other, b"PING\r\n", "+PONG\r\n");
        ask(&mut other, b"FLUSHALL\r\n", "+OK\r\n");
        let start = Instant::now();
        loop {
            other.write_all(b"SET a 2\r\n").unwrap();
            // Many keys are dropped by a thread.
            if line(&mut BufReader::new(&other)) == "+OK" {
                break;
            }
            assert!(start.elapsed() < GUARD);
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Clients that read none of their answers.
#[test]
fn unread_answers_without_memory_end_nothing() {
    for loops in ["1", "2"] {
        let arguments = ["kv", "--listen", "127.0.0.1:0", "--max-memory", "0"];
        let mut service = Service::start_with_loops(Command::new(PROGRAM), &arguments, loops);
        let addr = service.behind("listening on ");
        let mut stream = connect(&addr);
        stream.set_write_timeout(Some(GUARD)).unwrap();
        limit_to_more(&service, 100 * MIB);
        let value = "x".repeat(3000);
        ask(&mut stream, format!("SET read {value}\r\n").as_bytes(), "+OK\r\n");
        let mut refused = 0;
        for batch in 0..2_000 {
            let set = |number| format!("SET {batch}-{number} {value}\r\n");
            stream.write_all((0..50).map(set).collect::<String>().as_bytes()).unwrap();
            let mut answers = BufReader::new(&stream);
            refused += (0..50).filter(|_| line(&mut answers) != "+OK").count();
            if refused > 50 {
                break;
            }
        }
        assert!(refused > 50, "{refused}");
        let unread: Vec<_> =
            (0..2).flat_map(|_| flood(&addr, &b"GET read\r\n".repeat(2_000))).collect();
        ask(&mut stream, b"PING\r\n", "+PONG\r\n");
        drop(unread);
    }
}

/// An answer, without its line's end.
fn line(answers: &mut impl BufRead) -> String {
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    assert!(line.ends_with("\r\n"), "cut off: {line:?}");
    line.trim_end().to_owned()
}

#[test]
fn frames_for_which_the_process_has_no_memory_close_their_connection() {
    let arguments = ["echo", "--listen", "127.0.0.1:0", "--max-memory", "0"];
    let mut service = Service::start(&arguments);
    let addr = service.behind("listening on ");
    let mut other = connect(&addr);
    ask(&mut other, b"\0\0\0\x01a", "\0\0\0\x01a");
    limit_to_more(&service, 100 * MIB);
    let mut frame = vec![b'x'; 4 + 16 * MIB - 1];
    frame[..4].copy_from_slice(&(16 * MIB as u32).to_be_bytes());
    let unfinished = flood(&addr, &frame);
    ask(&mut other, b"\0\0\0\x05hello", "\0\0\0\x05hello");
    drop(unfinished);
}

/// Many small buffers take the memory, until none is left.
#[test]
fn short_frames_for_which_the_process_has_no_memory_close_their_connection() {
    let pid = std::process::id().to_string();
    let more = Command::new("prlimit").args(["--nofile=10000:", "--pid", &pid]).status();
    assert!(more.unwrap().success());
    let arguments = ["echo", "--listen", "127.0.0.1:0", "--max-memory", "0"];
    let frame = |sent, announced: u32| [&announced.to_be_bytes()[..], &vec![b'x'; sent]].concat();
    // Which allocation is the one that finds no memory depends on the limit.
    for limit in [110_000, 130_000, 150_000, 160_000] {
        let mut limited = Command::new("prlimit");
        limited.args([&format!("--as={}", limit << 10), PROGRAM]);
        let mut service = Service::start_with_loops(limited, &arguments, "2");
        let addr = service.behind("listening on ");
        let mut other = connect(&addr);
        ask(&mut other, b"\0\0\0\x01a", "\0\0\0\x01a");
        let short = frame(30_000, 30_001);
        let unfinished: Vec<_> = (0..40).flat_map(|_| flood(&addr, &short)).collect();
        for _ in 0..300 {
            let mut stream = connect(&addr);
            let _ = stream.write_all(&frame(40_000, 90_000));
            // Most are closed.
            stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let _ = stream.read(&mut [0]);
        }
        ask(&mut other, b"\0\0\0\x05hello", "\0\0\0\x05hello");
        drop(unfinished);
    }
}

/// The headers of frames alone, which say that 4 MiB will come.
#[test]
fn websocket_frames_for_which_the_process_has_no_memory_end_their_connection() {
    let mut service = Service::start(&["http", "--listen", "127.0.0.1:0"]);
    let addr = service.behind("listening on ");
    let mut other = connect(&addr);
    let get = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    ask(&mut other, get, "HTTP/1.1 200");
    limit_to_more(&service, 300 * MIB);
    let upgrade = b"GET /ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let frame =
        |first| [&[first, 0xff][..], &(4 * MIB as u64).to_be_bytes(), &[1, 2, 3, 4]].concat();
    // A Ping may not be so long.
    drop(flood(&addr, &[&upgrade[..], &frame(0x89)].concat()));
    let open = flood(&addr, &[&upgrade[..], &frame(0x82)].concat());
    // Each is refused, or waits for the frame. Those that are refused are told.
    let mut refused = 0;
    for mut stream in open {
        let mut head = vec![0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(head, b"HTTP/1.1 101");
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        // Close 1009.
        refused += u32::from(rest.windows(2).any(|code| code == 1009_u16.to_be_bytes()));
    }
    assert!(refused > 0);
    ask(&mut connect(&addr), get, "HTTP/1.1 200");
}

/// The same for messages of gRPC, each in a call that stays open.
#[test]
fn grpc_messages_for_which_the_process_has_no_memory_end_their_call() {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let head = [0, 0, payload.len() as u8, kind, flags];
        [&head[..], &stream.to_be_bytes(), payload].concat()
    };
    // POST, http, and the rest without indexing.
    let path = b"/wakeful.echo.v1.Echo/Unary";
    let headers = [
        &b"\x83\x86\x01\x01x\x04\x1b"[..],
        path,
        b"\x0f\x10\x10application/grpc\x00\x02te\x08trailers",
    ]
    .concat();
    let call = |stream, end, message: &[u8]| {
        [frame(1, 4, stream, &headers), frame(0, end, stream, message)].concat()
    };
    let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat();
    let mut service = Service::start(&["rpc", "--listen", "127.0.0.1:0"]);
    let addr = service.behind("listening on ");
    limit_to_more(&service, 300 * MIB);
    let unfinished: Vec<_> =
        (0..100).flat_map(|call_number| call(2 * call_number + 1, 0, b"\0\0\x40\0\0")).collect();
    let mut open = connect(&addr);
    open.write_all(&[&preface[..], &unfinished].concat()).unwrap();
    // A call that waits for its message is not answered.
    assert!(is_answered(&open));
    let mut other = connect(&addr);
    other.write_all(&[&preface[..], &call(1, 1, b"\0\0\0\0\0")].concat()).unwrap();
    assert!(is_answered(&other));
}

/// Waits for the headers of an answer. Without one the connection has ended.
fn is_answered(mut stream: &TcpStream) -> bool {
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        if head[3] == 1 {
            return true;
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; length as usize]).unwrap();
    }
    false
}
