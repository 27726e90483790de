//! Processes that are stopped for longer than their time limits (SIGSTOP), and run again: what
//! arrived in time is answered.
//!
//! A test sends while the program is stopped, sleeps until the limit has passed, and lets it run.
//! The sleeps are what is tested; nothing is synchronised by them.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use common::{GUARD, Service};

/// Longer than the limits below.
const PAUSE: Duration = Duration::from_millis(900);
const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
/// How many connections are idle at a time: more than one wait of the loop fetches.
const MANY: usize = 300;

/// Stops the service while `send` runs, until its limits have passed.
fn stopped(service: &Service, send: impl FnOnce()) {
    service.signal("-STOP");
    send();
    thread::sleep(PAUSE);
    service.signal("-CONT");
}

fn connect(addr: &str) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream
}

/// Reads one response with a body of a known length.
fn response(mut stream: &TcpStream) -> String {
    let mut text = String::new();
    while !text.contains("\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => text.push(byte[0].into()),
            _ => return format!("closed behind {text:?}"),
        }
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    text
}

fn http(arguments: &[&str]) -> (Service, String) {
    let mut service = Service::start(&[&["http", "--listen", "127.0.0.1:0"], arguments].concat());
    let addr = service.behind("listening on ");
    (service, addr)
}

#[test]
fn requests_that_came_within_the_idle_timeout_are_answered() {
    let (service, addr) = http(&["--idle-timeout", "0.3"]);
    let streams: Vec<_> = (0..MANY).map(|_| connect(&addr)).collect();
    for round in 0..2 {
        for mut stream in &streams {
            stream.write_all(REQUEST).unwrap();
        }
        for stream in &streams {
            assert!(response(stream).starts_with("HTTP/1.1 200"), "round {round}");
        }
        stopped(&service, || {
            for mut stream in &streams {
                stream.write_all(REQUEST).unwrap();
            }
        });
        let lost = streams.iter().filter(|s| !response(s).starts_with("HTTP/1.1 200")).count();
        assert_eq!(lost, 0, "of {MANY} requests, in round {round}");
    }
}

#[test]
fn headers_that_came_within_their_timeout_are_answered() {
    let (service, addr) = http(&["--header-timeout", "0.3"]);
    let streams: Vec<_> = (0..MANY).map(|_| connect(&addr)).collect();
    let (start, rest) = REQUEST.split_at(20);
    for (number, mut stream) in streams.iter().enumerate() {
        stream.write_all(if number % 2 == 0 { start } else { b"" }).unwrap();
    }
    stopped(&service, || {
        for (number, mut stream) in streams.iter().enumerate() {
            stream.write_all(if number % 2 == 0 { rest } else { REQUEST }).unwrap();
        }
    });
    let lost = streams.iter().filter(|s| !response(s).starts_with("HTTP/1.1 200")).count();
    assert_eq!(lost, 0, "of {MANY} requests");
}

#[test]
fn a_body_that_came_in_time_is_read() {
    let (service, addr) = http(&["--body-timeout", "0.3"]);
    let mut stream = connect(&addr);
    stream.write_all(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 8\r\n\r\nhalf").unwrap();
    // The response's head comes with the first half.
    assert!(response_head(&stream).starts_with("HTTP/1.1 200"));
    stream.read_exact(&mut [0; 4]).unwrap();
    stopped(&service, || stream.write_all(b"left").unwrap());
    let mut body = [0; 4];
    stream.read_exact(&mut body).unwrap();
    assert_eq!(&body, b"left");
}

fn response_head(mut stream: &TcpStream) -> String {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0].into());
    }
    text
}

/// By prior knowledge: the preface, settings, and GET / of the static table. What matters is that
/// HEADERS come back.
#[test]
fn streams_of_http2_that_came_within_the_idle_timeout_are_answered() {
    let (service, addr) = http(&["--idle-timeout", "0.3"]);
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let head = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
        [&head[..], payload].concat()
    };
    // GET, http, /, and the authority "x" without indexing.
    let get = |stream| frame(1, 0x5, stream, b"\x82\x86\x84\x01\x01x");
    let mut stream = connect(&addr);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    stream.write_all(&[&preface[..], &frame(4, 0, 0, &[]), &get(1)].concat()).unwrap();
    let is_answered = |mut stream: &TcpStream, id: u8| {
        loop {
            let mut head = [0; 9];
            if stream.read_exact(&mut head).is_err() {
                return false;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            stream.read_exact(&mut payload).unwrap();
            // DATA with END_STREAM.
            if head[3] == 0 && head[8] == id && head[4] & 1 != 0 {
                return true;
            }
        }
    };
    assert!(is_answered(&stream, 1));
    stopped(&service, || stream.write_all(&get(3)).unwrap());
    assert!(is_answered(&stream, 3), "the stream came before the connection was idle for long");
}

#[test]
fn a_proxy_that_was_stopped_loses_neither_requests_nor_responses() {
    let (_backend, backend) = http(&[]);
    let arguments = ["proxy", "--listen", "127.0.0.1:0", "--to", &backend];
    let limits = ["--idle-timeout", "0.3", "--upstream-timeout", "0.3"];
    let mut proxy = Service::start(&[&arguments[..], &limits].concat());
    let addr = proxy.behind("listening on ");
    let idle = connect(&addr);
    (&idle).write_all(REQUEST).unwrap();
    assert!(response(&idle).starts_with("HTTP/1.1 200"));
    let asking: Vec<_> = (0..20).map(|_| connect(&addr)).collect();
    for mut stream in &asking {
        // Its answer comes while the proxy is stopped.
        stream.write_all(b"GET /sleep/150 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    }
    thread::sleep(Duration::from_millis(80));
    stopped(&proxy, || (&idle).write_all(REQUEST).unwrap());
    assert!(response(&idle).starts_with("HTTP/1.1 200"));
    for stream in &asking {
        assert!(response(stream).starts_with("HTTP/1.1 200"));
    }
}

#[test]
fn the_grace_of_a_drain_is_not_spent_while_the_process_is_stopped() {
    let (mut service, addr) = http(&["--grace", "1"]);
    let stream = connect(&addr);
    (&stream).write_all(b"GET /sleep/1500 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    thread::sleep(Duration::from_millis(100));
    service.signal("-TERM");
    service.behind("draining; ");
    stopped(&service, || {});
    assert!(response(&stream).starts_with("HTTP/1.1 200"), "it was aborted");
}
