//! Bodies of HTTP/1.1 requests that somebody still has when the response is over.

mod common;

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use wakeful::LoopGroup;
use wakeful_http::{Limits, Refusal, RequestBody, Running, Server, service_fn};

use common::*;

const IDLE: Duration = Duration::from_millis(200);

/// A server that answers at once, and has `keep` do something with the body. Nothing but the idle
/// timeout closes a connection.
fn start(
    idle_timeout: Duration,
    keep: impl Fn(RequestBody) + Clone + Send + Sync + 'static,
) -> Running {
    let limits = Limits::new()
        .idle_timeout(idle_timeout)
        .header_timeout(100 * GUARD)
        // So that it looks often: this one is for bodies of requests in flight.
        .body_timeout(IDLE)
        .min_rate(None)
        .keepalive(None);
    let service = move || {
        let keep = keep.clone();
        service_fn(move |request: Request<RequestBody>| {
            keep(request.into_body());
            std::future::ready(Ok::<_, Infallible>(Response::new("hello".to_owned())))
        })
    };
    let server = Server::bind("127.0.0.1:0").unwrap().group(LoopGroup::builder().loops(1));
    server.limits(limits).start_with(service).unwrap()
}

fn ask(stream: &mut TcpStream, length: usize, body: &str) {
    let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).unwrap();
}

fn read_answer(stream: &mut TcpStream) {
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "closed before its answer");
        answer.extend_from_slice(&piece[..count]);
    }
}

fn is_over(running: &Running, stream: TcpStream) {
    // What was sent after the body is not answered: it was not read.
    assert!(!read_all(stream).contains("hello"));
    until("it is closed", || running.counts().open() == 0);
    assert_eq!(running.http_counts().refused(Refusal::IdleTimeout), 1);
}

#[test]
fn a_body_that_is_forgotten_ends_its_connection_behind_the_response() {
    let forgets: fn(RequestBody) = |body| std::mem::forget(body);
    let keeps: fn(RequestBody) = |body| {
        let keep = async move {
            std::future::pending::<()>().await;
            drop(body);
        };
        wakeful::spawn(keep).detach();
    };
    for keep in [forgets, keeps] {
        for (length, body, rest) in [(5, "12", "345"), (5, "", ""), (1 << 20, "12", "")] {
            let running = start(IDLE, keep);
            let mut stream = raw(&running);
            ask(&mut stream, length, body);
            read_answer(&mut stream);
            if !rest.is_empty() {
                stream.write_all(rest.as_bytes()).unwrap();
                ask(&mut stream, 0, "");
            }
            is_over(&running, stream);
        }
        // A body that arrives as a whole with its head delays nothing.
        let running = start(IDLE, keep);
        let mut stream = raw(&running);
        for _ in 0..3 {
            ask(&mut stream, 5, "12345");
            read_answer(&mut stream);
        }
        is_over(&running, stream);
    }
}

/// A client of HTTP/1.0 would take a reset for the sign of it.
#[test]
fn a_body_that_is_forgotten_does_not_make_the_response_look_cut_off() {
    let running = start(IDLE, std::mem::forget);
    let mut stream = raw(&running);
    stream.write_all(b"POST / HTTP/1.0\r\ncontent-length: 5\r\n\r\n12").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("hello"), "{answer}");
    until("it is closed", || running.counts().open() == 0);
    assert_eq!(running.http_counts().refused(Refusal::IdleTimeout), 1);
}

#[test]
fn a_task_that_reads_on_behind_the_response_reads_all_that_comes() {
    // A pause of this machine is not to be taken for one of the client.
    let long = 10 * IDLE;
    let received = Arc::<AtomicUsize>::default();
    let count = received.clone();
    let running = start(long, move |mut body| {
        let count = count.clone();
        let read = async move {
            while let Some(Ok(frame)) = body.frame().await {
                count.fetch_add(frame.data_ref().map_or(0, bytes::Bytes::len), Ordering::Relaxed);
            }
        };
        wakeful::spawn(read).detach();
    });
    let mut stream = raw(&running);
    ask(&mut stream, 12, "");
    read_answer(&mut stream);
    // In all, for longer than the timeout.
    for sent in 1..=12 {
        thread::sleep(long / 8);
        stream.write_all(b"x").unwrap();
        until("it is read", || received.load(Ordering::Relaxed) == sent);
    }
    // And the connection continues.
    ask(&mut stream, 0, "");
    read_answer(&mut stream);
}

#[test]
fn a_body_that_is_complete_and_held_keeps_no_connection_open() {
    let running = start(IDLE, |mut body| {
        let read = async move {
            while let Some(Ok(frame)) = body.frame().await {
                drop(frame);
            }
            std::future::pending::<()>().await;
            drop(body);
        };
        wakeful::spawn(read).detach();
    });
    let mut stream = raw(&running);
    for _ in 0..3 {
        ask(&mut stream, 5, "12345");
        read_answer(&mut stream);
    }
    is_over(&running, stream);
}

/// hyper reads the size of a chunk, and then tries to read what is in it.
#[test]
fn a_chunked_body_that_is_dropped_behind_its_response_resets_nobody() {
    let extension = "x".repeat(10_000);
    // The second one takes two reads, and both have something.
    for chunk in ["ffff\r\n".to_owned(), format!("ffff;{extension}\r\nsome of it")] {
        let held = Arc::<Mutex<Option<RequestBody>>>::default();
        let hold = held.clone();
        let running = start(100 * GUARD, move |body| *hold.lock().unwrap() = Some(body));
        let mut stream = raw(&running);
        // Its first chunk waits for somebody to read it, so hyper reads no more.
        let head = "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        read_answer(&mut stream);
        stream.write_all(chunk.as_bytes()).unwrap();
        // So that the loop knows of it, and reads it at once.
        thread::sleep(Duration::from_millis(50));
        drop(held.lock().unwrap().take());
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        stream.write_all(&vec![b'x'; 8 << 20]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
}

/// All of it comes, before or after it is dropped. So nothing more of it is waited for.
#[test]
fn a_body_that_comes_though_nobody_needs_it_delays_no_close() {
    let chunked = "transfer-encoding: chunked\r\n\r\n1\r\nx\r\n";
    let parts = [
        ("content-length: 5\r\n\r\n12345".to_owned(), ""),
        (format!("{chunked}0\r\n\r\n"), ""),
        (chunked.to_owned(), "0\r\n\r\n"),
    ];
    for (begin, rest) in parts {
        let held = Arc::<Mutex<Option<RequestBody>>>::default();
        let hold = held.clone();
        let running = start(IDLE, move |body| *hold.lock().unwrap() = Some(body));
        let mut stream = raw(&running);
        stream.write_all(format!("POST / HTTP/1.1\r\nhost: x\r\n{begin}").as_bytes()).unwrap();
        read_answer(&mut stream);
        stream.write_all(rest.as_bytes()).unwrap();
        thread::sleep(Duration::from_millis(50));
        drop(held.lock().unwrap().take());
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        // It does not read on.
        until(&format!("{begin:?} {rest:?} is closed"), || {
            thread::sleep(Duration::from_millis(10));
            stream.write_all(b"x").is_err()
        });
    }
}
