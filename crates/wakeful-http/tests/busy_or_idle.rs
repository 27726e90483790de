//! When a connection counts as idle: not while a body comes or goes, though no request is in
//! flight; and as soon as nothing does.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use axum::body::Body;
use axum::routing::{get, post};
use http_body_util::BodyExt;
use wakeful_http::{Limits, MinRate, Refusal, Running};

use common::frames::{Client, *};
use common::*;

const SHORT: Duration = Duration::from_millis(300);
const INITIAL_WINDOW: u16 = 4;

fn start(limits: Limits) -> Running {
    let behind = |body: Body| async move {
        wakeful::spawn(body.collect()).detach();
        "taken"
    };
    let unread = |body: Body| async move {
        wakeful::time::sleep(SHORT).await;
        drop(body);
        "unread"
    };
    let app = router()
        .route("/behind", post(behind))
        .route("/unread", post(unread))
        .route("/large", get(|| async { vec![b'w'; 8 << 20] }));
    server().limits(limits).start(app).unwrap()
}

fn begin(running: &Running, path: &str, length: usize) -> TcpStream {
    let mut stream = raw(running);
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn read_until(stream: &mut TcpStream, end: &str) {
    let mut answer = Vec::new();
    while !answer.ends_with(end.as_bytes()) {
        let mut buf = [0; 1024];
        let read = stream.read(&mut buf).unwrap();
        assert!(read > 0, "closed early");
        answer.extend_from_slice(&buf[..read]);
    }
}

/// In clock ticks, of this process.
fn cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    stat.split(' ').skip(13).take(2).map(|number| number.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_body_that_is_read_behind_its_response_may_take_longer_than_an_idle_connection() {
    let running = start(Limits::new().idle_timeout(SHORT));
    let mut stream = begin(&running, "/behind", 10);
    read_until(&mut stream, "taken");
    for _ in 0..10 {
        thread::sleep(SHORT / 3);
        stream.write_all(b"x").unwrap();
    }
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    read_until(&mut stream, "hello");
    assert_eq!(running.http_counts().refused(Refusal::IdleTimeout), 0);
    until("then it is idle", || running.counts().open() == 0);
    assert_eq!(running.http_counts().refused(Refusal::IdleTimeout), 1);
}

#[test]
fn a_drain_waits_for_such_a_body_and_does_not_spin() {
    let running = start(Limits::default());
    let mut stream = begin(&running, "/behind", 10);
    read_until(&mut stream, "taken");
    let before = cpu();
    // Nothing more comes.
    assert_eq!(running.shutdown(Duration::from_secs(2)).unwrap(), 1);
    let ticks = cpu() - before;
    // Of about 200: a loop that spins takes most of them, and other tests run beside.
    assert!(ticks < 100, "{ticks}");
}

#[test]
fn behind_a_body_that_nobody_reads_a_connection_is_idle() {
    let running = start(Limits::default());
    let mut stream = begin(&running, "/unread", 8);
    // hyper reads ahead once; the rest it reads when the body was dropped.
    for part in ["body", "more"] {
        thread::sleep(SHORT / 6);
        stream.write_all(part.as_bytes()).unwrap();
    }
    read_until(&mut stream, "unread");
    assert_eq!(running.shutdown(Duration::from_secs(4)).unwrap(), 0);
}

/// hyper reads once for the rest, and closes if that was not all of it. The next request of a
/// client that does not know that would be lost.
#[test]
fn an_answer_to_a_body_that_is_not_read_says_that_the_connection_closes() {
    let running = start(Limits::default());
    let large = ["content-length: 100000000", "transfer-encoding: chunked"];
    for (length, closes) in [("content-length: 8", false), (large[0], true), (large[1], true)] {
        let mut stream = raw(&running);
        let head = format!("POST /n/1 HTTP/1.1\r\nhost: x\r\n{length}\r\n\r\n");
        let body = if closes { "ffffff\r\n" } else { "12345678" };
        stream.write_all((head + body).as_bytes()).unwrap();
        let mut answer = String::new();
        while !answer.contains("\r\n\r\n") {
            let mut buf = [0; 1024];
            let read = stream.read(&mut buf).unwrap();
            assert!(read > 0, "closed without an answer");
            answer.push_str(std::str::from_utf8(&buf[..read]).unwrap());
        }
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
        assert_eq!(answer.contains("connection: close"), closes, "{length}: {answer}");
        if closes {
            // It may say more, and is not reset for it.
            stream.write_all(&vec![b'x'; 8 << 20]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0; 1024]).unwrap(), 0, "{length}");
        } else {
            stream.write_all(b"GET /n/1 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        }
    }
}

#[test]
fn an_http2_response_that_the_client_takes_slowly_is_not_idle() {
    let running = start(Limits::new().idle_timeout(SHORT));
    let mut client = Client::with_settings(&running, &[(INITIAL_WINDOW, 1000)]);
    client.get(1, "/large");
    for _ in 0..10 {
        let mut received = 0;
        while received < 1000 {
            received += client.wait_for(DATA).payload.len();
        }
        thread::sleep(SHORT / 3);
        client.send(WINDOW_UPDATE, 0, 1, &1000_u32.to_be_bytes());
    }
    assert_eq!(running.http_counts().refused(Refusal::IdleTimeout), 0);
    client.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes());
    assert_eq!(client.wait_for(GOAWAY).error(), NO_ERROR);
    assert_eq!(running.http_counts().refused(Refusal::IdleTimeout), 1);
}

#[test]
fn an_http2_response_that_the_client_gives_no_room_is_reset_and_the_others_go_on() {
    let rate = MinRate::new(1000, SHORT);
    let running = start(Limits::new().min_rate(rate));
    let mut client = Client::with_settings(&running, &[(INITIAL_WINDOW, 0)]);
    client.get(1, "/large");
    client.get(3, "/never");
    let reset = client.wait_for(RST_STREAM);
    assert_eq!((reset.stream, reset.error()), (1, CANCEL));
    assert_eq!(running.http_counts().refused(Refusal::SlowResponse), 1);
    assert_eq!((running.http_counts().in_flight(), running.counts().open()), (1, 1));
}

/// All of the body is with h2, where nothing but the connection can be ended.
#[test]
fn an_http2_connection_that_gives_no_room_for_the_last_response_is_aborted() {
    let rate = MinRate::new(1000, SHORT);
    let running = start(Limits::new().min_rate(rate));
    let mut client = Client::with_settings(&running, &[(INITIAL_WINDOW, 1)]);
    client.get(1, "/large");
    assert_eq!(client.wait_for(GOAWAY).error(), ENHANCE_YOUR_CALM);
    assert_eq!(running.http_counts().refused(Refusal::SlowResponse), 1);
    drop(client);
    until("it is closed", || running.counts().open() == 0);
}

#[test]
fn an_idle_http2_client_that_does_not_leave_is_closed_within_the_grace() {
    let running = start(Limits::default());
    let mut client = Client::new(&running);
    client.get(1, "/");
    assert_eq!(client.wait_for(DATA).payload, b"hello");
    assert_eq!(running.shutdown(Duration::from_secs(2)).unwrap(), 0);
}
