//! A server that sends what nobody asked for breaks the protocol, even while no request waits. Such
//! a run is not valid. A server that only closes its connections does not break it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;
use wakeful_load::{Measurement, Plan, Protocol, Requests, Schedule, Template, Validity};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// What a frame's header of HTTP/2 takes, and the client's preface before the first.
const HEADER: usize = 9;
const PREFACE: usize = 24;

/// Takes the requests from the front of what has arrived, and says what to send.
type Answers = fn(&mut Vec<u8>) -> Vec<u8>;

/// Loads a server that sends this, in a closed loop with one request at a time.
fn measure(
    protocol: Protocol,
    template: &Template,
    greeting: &[u8],
    answers: Answers,
) -> Measurement {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string().parse().unwrap();
    let greeting = greeting.to_vec();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let greeting = greeting.clone();
            thread::spawn(move || serve(stream, &greeting, answers));
        }
    });
    Plan::new(target)
        .requests(Requests::new(protocol, template).unwrap())
        .schedule(Schedule::Closed)
        .connections(2)
        .in_flight(1)
        .warm_up(Duration::from_millis(20))
        .duration(Duration::from_millis(300))
        .run()
        .unwrap()
}

/// Ends with an error where the client has closed.
fn serve(mut stream: TcpStream, greeting: &[u8], answers: Answers) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.write_all(greeting)?;
    let (mut arrived, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => arrived.extend_from_slice(&buffer[..count]),
        }
        let out = answers(&mut arrived);
        // The last bytes and the end leave in one segment.
        sockopt::set_tcp_cork(&stream, out.ends_with(b"bye"))?;
        stream.write_all(&out)?;
        if out.ends_with(b"bye") {
            return Ok(());
        }
    }
}

/// Forgets requests that end so; returns how many there were.
fn take_requests(arrived: &mut Vec<u8>, end: &[u8]) -> usize {
    let count = arrived.windows(end.len()).filter(|part| *part == end).count();
    if count > 0 {
        arrived.clear();
    }
    count
}

/// Of HTTP/2: to each request an answer, and another one on a stream that nobody opened.
fn http2_answers(arrived: &mut Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    if arrived.starts_with(b"PRI ") && arrived.len() >= PREFACE {
        arrived.drain(..PREFACE);
    }
    while arrived.len() >= HEADER && !arrived.starts_with(b"PRI") {
        let length = u32::from_be_bytes([0, arrived[0], arrived[1], arrived[2]]) as usize;
        if arrived.len() < HEADER + length {
            break;
        }
        let ends = arrived[4] & 1 != 0 && arrived[3] <= 1;
        let stream = u32::from_be_bytes([arrived[5], arrived[6], arrived[7], arrived[8]]);
        if ends {
            for stream in [stream, stream + 100] {
                // :status 200, and grpc-status 0.
                let block = b"\x88\0\x0bgrpc-status\x010";
                out.extend_from_slice(&[0, 0, block.len() as u8, 1, 5]);
                out.extend_from_slice(&stream.to_be_bytes());
                out.extend_from_slice(block);
            }
        }
        arrived.drain(..HEADER + length);
    }
    out
}

/// The reason that names the protocol.
fn broken_protocol(measurement: &Measurement) -> Option<String> {
    let Validity::Invalid { reasons, .. } = measurement.validity() else { return None };
    reasons.into_iter().find(|reason| reason.contains("broke the protocol"))
}

fn assert_named(measurement: &Measurement, part: &str) {
    let reason = broken_protocol(measurement);
    assert!(reason.as_ref().is_some_and(|it| it.contains(part)), "{part}: {measurement:?}");
    assert!(measurement.recording.failed > 0 && measurement.recording.answered > 0);
    assert!(measurement.failures.keys().any(|cause| cause.contains(part)), "{measurement:?}");
    assert!(measurement.first_failure.as_ref().is_some_and(|cause| cause.contains(part)));
}

#[test]
fn an_answer_that_nobody_asked_for_makes_a_run_invalid() {
    let get = Template::http("GET", "localhost", "/");
    let three = |arrived: &mut Vec<u8>| OK.repeat(3 * take_requests(arrived, b"\r\n\r\n"));
    assert_named(&measure(Protocol::Http1, &get, b"", three), "http1: an answer that nobody");
    let two = |arrived: &mut Vec<u8>| b"+OK\r\n".repeat(2 * take_requests(arrived, b"PING\r\n"));
    let ping = Template::command("PING");
    assert_named(&measure(Protocol::Resp, &ping, b"", two), "resp: an answer that nobody");
    let twice = |arrived: &mut Vec<u8>| match arrived.len() {
        20.. => std::mem::take(arrived).repeat(2),
        _ => Vec::new(),
    };
    let payload = Template::of_size(16);
    assert_named(&measure(Protocol::Frames, &payload, b"", twice), "frames: a frame that nobody");
    let settings = b"\0\0\0\x04\0\0\0\0\0";
    let grpc = Template::grpc("localhost", "/a.B/C", b"");
    for template in [get, grpc] {
        let measurement = measure(Protocol::Http2, &template, settings, http2_answers);
        assert_named(&measurement, "h2: a frame on stream");
    }
}

#[test]
fn a_server_that_closes_between_two_requests_does_not_break_the_protocol() {
    let get = Template::http("GET", "localhost", "/");
    let closes = |arrived: &mut Vec<u8>| match take_requests(arrived, b"\r\n\r\n") {
        0 => Vec::new(),
        _ => b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbye".to_vec(),
    };
    let measurement = measure(Protocol::Http1, &get, b"", closes);
    assert!(measurement.reconnected > 0 && measurement.protocol_errors.is_empty());
    assert_eq!(broken_protocol(&measurement), None);
    // A server does this if it has waited too long for a request.
    let says_so = |arrived: &mut Vec<u8>| match take_requests(arrived, b"\r\n\r\n") {
        0 => Vec::new(),
        _ => [OK, b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 3\r\n\r\nbye"].concat(),
    };
    let measurement = measure(Protocol::Http1, &get, b"", says_so);
    assert!(measurement.reconnected > 0 && measurement.protocol_errors.is_empty());
    assert_eq!(measurement.recording.failed, 0, "{measurement:?}");
}

#[test]
fn an_end_that_comes_with_the_last_bytes_is_seen() {
    let get = Template::http("GET", "localhost", "/");
    let until_the_end = |arrived: &mut Vec<u8>| match take_requests(arrived, b"\r\n\r\n") {
        0 => Vec::new(),
        _ => b"HTTP/1.1 200 OK\r\n\r\nbye".to_vec(),
    };
    let measurement = measure(Protocol::Http1, &get, b"", until_the_end);
    assert_eq!(measurement.recording.failed, 0, "{measurement:?}");
    // On each of the two connections one answer would have been waited for until the end.
    assert!(measurement.reconnected > 2, "{measurement:?}");
}
