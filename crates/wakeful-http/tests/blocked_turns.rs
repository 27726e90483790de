//! Connections of a loop that a handler has just blocked: what it took is not their idleness.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use axum::routing::get;
use wakeful::LoopGroup;
use wakeful_http::{DrainPlan, Limits, Refusal, Running};

use common::frames::{CANCEL, Client, DATA, GOAWAY, HEADERS, RST_STREAM};
use common::*;

/// What an idle connection may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// One loop, which `/blocks` blocks for longer than an idle connection may take: at once, or
/// `/blocks/later`, when `later` is closed.
struct Blocked {
    running: Running,
    begun: Receiver<()>,
    later: Sender<()>,
}

fn start(limits: Limits) -> Blocked {
    let (begins, begun) = async_channel::unbounded();
    let (later, opened) = async_channel::bounded::<()>(1);
    let block = || thread::sleep(PATIENCE + PATIENCE / 4);
    let at_once = begins.clone();
    let at_once = async move || {
        at_once.send(()).await.unwrap();
        block();
        "blocked"
    };
    let when_told = async move || {
        begins.send(()).await.unwrap();
        // Nothing is sent: it ends by being closed.
        let _ = opened.recv().await;
        block();
        "blocked"
    };
    let router = router().route("/blocks", get(at_once)).route("/blocks/later", get(when_told));
    let server = server().group(LoopGroup::builder().loops(1)).limits(limits);
    Blocked { running: server.start(router).unwrap(), begun, later }
}

fn ask(stream: &mut TcpStream, path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).unwrap();
}

/// The answer, as far as its last word.
fn answer(stream: &mut TcpStream, last: &str) -> String {
    let mut answer = String::new();
    while !answer.ends_with(last) {
        let mut buf = [0; 1024];
        let read = stream.read(&mut buf).unwrap();
        assert!(read > 0, "closed behind {answer:?}");
        answer.push_str(std::str::from_utf8(&buf[..read]).unwrap());
    }
    answer
}

#[test]
fn a_connection_whose_handler_has_blocked_its_loop_is_not_idle_behind_its_response() {
    let limits = Limits::new().idle_timeout(PATIENCE);
    let blocked = start(limits);
    let running = &blocked.running;
    let mut stream = raw(running);
    // From then on it has a timer.
    ask(&mut stream, "/");
    answer(&mut stream, "hello");
    ask(&mut stream, "/blocks");
    assert!(!answer(&mut stream, "blocked").contains("connection: close"));
    // The loop takes some turns.
    is_served(running);
    is_served(running);
    ask(&mut stream, "/");
    answer(&mut stream, "hello");
}

#[test]
fn a_drain_that_a_blocked_loop_learns_of_late_gives_idle_connections_their_time() {
    let Blocked { running, begun, later } = start(Limits::default());
    let mut streams = [raw(&running), raw(&running), raw(&running)];
    for stream in &mut streams {
        ask(stream, "/");
        answer(stream, "hello");
    }
    let [one, other, idle] = &mut streams;
    ask(other, "/blocks/later");
    begun.recv_blocking().unwrap();
    ask(one, "/blocks");
    begun.recv_blocking().unwrap();
    // Both wait for the next turn, which blocks before the drain.
    later.close();
    let plan = DrainPlan::new().grace(GUARD).linger(PATIENCE);
    let drained = thread::spawn(move || running.drain(plan));
    answer(one, "blocked");
    answer(other, "blocked");
    idle.set_read_timeout(Some(PATIENCE / 5)).unwrap();
    let read = idle.read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(read, Err(ErrorKind::WouldBlock), "nobody has asked, and it was closed at once");
    idle.set_read_timeout(Some(GUARD)).unwrap();
    ask(idle, "/");
    assert!(answer(idle, "hello").contains("connection: close"));
    assert_eq!(drained.join().unwrap().unwrap(), 0);
}

#[test]
fn requests_that_were_cancelled_while_their_loop_was_blocked_are_no_flood() {
    let Blocked { running, .. } = start(Limits::default());
    let mut client = Client::new(&running);
    let mut streams = (1..).step_by(2);
    // The server reads more at once from a client that has not sent much.
    for stream in streams.by_ref().take(10) {
        client.get(stream, "/");
        assert_eq!(client.wait_for(HEADERS).status(), "200");
        assert_eq!(client.wait_for(DATA).payload, b"hello");
    }
    let (blocks, blocked) = async_channel::bounded(1);
    let posted = running.handles()[0].post(move || {
        blocks.send_blocking(()).unwrap();
        thread::sleep(PATIENCE / 4);
    });
    assert!(posted.is_ok());
    blocked.recv_blocking().unwrap();
    for stream in streams.by_ref().take(100) {
        client.get(stream, "/");
        client.send(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
    }
    let last = streams.next().unwrap();
    client.get(last, "/");
    let response = loop {
        let frame = client.wait_for_any();
        assert_ne!(frame.kind, GOAWAY, "{:?}", String::from_utf8_lossy(&frame.payload));
        if frame.kind == HEADERS && frame.stream == last {
            break frame;
        }
    };
    assert_eq!(response.status(), "200");
    assert_eq!(running.http_counts().refused(Refusal::Http2ResetFlood), 0);
}
