//! A server that replaces connections (`WhenFull::Replace`): whoever comes is let in, and another
//! one closes for it at once, so that nobody keeps others out by being slow.

mod common;

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::response::Response;
use axum::routing::{get, post};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use futures_util::{StreamExt, stream};
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Bytes;
use socket2::{Domain, Socket, Type};
use wakeful::LoopGroup;
use wakeful::accept::WhenFull;
use wakeful_http::{Limits, Refusal, Running, upgrade};

use common::*;

/// Larger than what the sockets of both sides hold.
const LARGE: usize = 64 << 20;
const PIECE: usize = 64 << 10;

fn start(connections: usize) -> Running {
    // Nothing but the limit of connections closes one.
    let never = 100 * GUARD;
    let limits = Limits::new()
        .max_connections(connections)
        .when_full(WhenFull::Replace)
        .idle_timeout(never)
        .header_timeout(never)
        .body_timeout(None)
        .min_rate(None);
    let piece = || Ok::<_, Infallible>(Bytes::from_static(&[0; PIECE]));
    let large = move || async move {
        Body::from_stream(stream::iter((0..LARGE / PIECE).map(move |_| piece())))
    };
    let endless = || async {
        let first = stream::iter([Ok::<_, Infallible>(Bytes::from("some"))]);
        Body::from_stream(first.chain(stream::pending()))
    };
    // More than the client's socket has room for, and less than the server's.
    let fails = || async {
        let first = stream::iter([Ok(Bytes::from_static(&[0; 4 * PIECE]))]);
        // Not before the first piece is written.
        let failure = stream::once(async {
            wakeful::time::sleep(Duration::from_millis(20)).await;
            Err(io::Error::other("on purpose"))
        });
        Body::from_stream(first.chain(failure))
    };
    // A task reads the body, and the response does not wait for it.
    let read_on = |body: Body| async {
        wakeful::spawn(body.collect()).detach();
        "taken"
    };
    let app: Router = router()
        .route("/large", get(large))
        .route("/read-on", post(read_on))
        .route("/endless", get(endless))
        .route("/fails", get(fails))
        .route("/upgraded/{path}", get(upgraded));
    server().group(LoopGroup::builder().loops(1)).limits(limits).start(app).unwrap()
}

fn connect(running: &Running) -> TcpStream {
    let stream = TcpStream::connect(addr(running)).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream
}

/// A connection that has said `text` and is open.
fn one_that_says(running: &Running, text: &str) -> TcpStream {
    let accepted = running.counts().accepted();
    let mut stream = connect(running);
    stream.write_all(text.as_bytes()).unwrap();
    until("it is accepted", || running.counts().accepted() > accepted);
    stream
}

fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0; 1]);
    stream.set_nonblocking(false).unwrap();
    !matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

fn gave_way(running: &Running) -> u64 {
    running.http_counts().refused(Refusal::GaveWay)
}

#[test]
fn the_one_that_is_silent_for_longest_closes_for_one_more() {
    for half in ["", "G", "GET / HTTP/1.1\r\nhost: "] {
        let running = start(3);
        let mut silent: Vec<_> = (0..3).map(|_| one_that_says(&running, half)).collect();
        is_served(&running);
        until("the first one is closed", || is_closed(&mut silent[0]));
        assert!(!silent[1..].iter_mut().any(is_closed));
        assert_eq!(gave_way(&running), 1);
    }
}

#[test]
fn it_keeps_as_many_as_its_limit_says_while_no_more_come() {
    for limit in [1, 3] {
        let running = start(limit);
        let mut silent: Vec<_> = (0..limit).map(|_| one_that_says(&running, "")).collect();
        // For longer than it would take to notice that connections wait.
        thread::sleep(Duration::from_millis(200));
        assert!(!silent.iter_mut().any(is_closed));
        assert_eq!((running.counts().open(), gave_way(&running)), (limit, 0));
    }
}

#[test]
fn those_that_do_not_read_their_answers_keep_nobody_out() {
    let running = start(3);
    let request = "GET /large HTTP/1.1\r\nhost: x\r\n\r\n";
    let reads_nothing: Vec<_> = (0..3).map(|_| one_that_says(&running, request)).collect();
    until("all are in flight", || running.http_counts().in_flight() == 3);
    // Each is the newest and has sent nothing at first, which is no reason to close it.
    for _ in 0..5 {
        is_served(&running);
    }
    until("one has closed for them", || gave_way(&running) > 0);
    drop(reads_nothing);
}

#[test]
fn a_silent_one_closes_before_one_that_reads_its_answer() {
    let running = start(2);
    let mut reads =
        one_that_says(&running, "GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    until("it is in flight", || running.http_counts().in_flight() == 1);
    let mut silent = one_that_says(&running, "");
    // As long as it takes to be taken for silent.
    thread::sleep(Duration::from_millis(100));
    is_served(&running);
    until("the silent one is closed", || is_closed(&mut silent));
    let mut answer = Vec::new();
    reads.read_to_end(&mut answer).unwrap();
    assert!(answer.len() > LARGE);
}

#[test]
fn a_silent_one_closes_before_one_that_uploads_behind_its_response() {
    let running = start(2);
    let mut uploads = one_that_says(
        &running,
        "POST /read-on HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n",
    );
    let mut answer = Vec::new();
    while !answer.ends_with(b"taken") {
        let mut buf = [0; 1024];
        let count = uploads.read(&mut buf).unwrap();
        assert!(count > 0, "it has ended");
        answer.extend_from_slice(&buf[..count]);
    }
    let mut silent = one_that_says(&running, "");
    // As long as it takes to be taken for silent.
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(5));
        uploads.write_all(b"x").unwrap();
    }
    is_served(&running);
    until("the silent one is closed", || is_closed(&mut silent));
    assert!(!is_closed(&mut uploads));
}

#[test]
fn those_that_linger_keep_nobody_out() {
    let running = start(2);
    // Refused; what it announced does not come, and is waited for.
    let refused = "POST / HTTP/1.1\r\nhost: x\r\nhost: y\r\ncontent-length: 100\r\n\r\n";
    let linger: Vec<_> = (0..2).map(|_| one_that_says(&running, refused)).collect();
    until("both are answered", || running.http_counts().refused(Refusal::Host) == 2);
    for _ in 0..5 {
        is_served(&running);
    }
    drop(linger);
}

#[test]
fn a_request_that_came_with_its_connection_is_answered_whoever_comes_behind_it() {
    let running = start(1);
    // All are accepted in one turn, or in few.
    let asked: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = connect(&running);
            stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
            stream
        })
        .collect();
    for mut stream in asked {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(b"hello"));
    }
}

/// Leaves HTTP, and echoes, or has the connection and does nothing with it.
async fn upgraded(path: Path<String>, mut request: Request) -> Response<Body> {
    let upgrading = upgrade::on(&mut request);
    wakeful::spawn(async move {
        let mut stream = upgrading.await.unwrap();
        let mut buf = [0; 16];
        if *path == "holds" {
            std::future::pending::<()>().await;
        }
        while let Ok(read @ 1..) = stream.read(&mut buf).await {
            stream.write_all(&buf[..read]).await.unwrap();
        }
    })
    .detach();
    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let response = response.header("connection", "upgrade").header("upgrade", "echo");
    response.body(Body::empty()).unwrap()
}

fn one_that_is_upgraded(running: &Running, path: &str) -> TcpStream {
    let request = format!(
        "GET /upgraded/{path} HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n"
    );
    let mut stream = connect(running);
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    stream
}

fn is_echoed(stream: &mut TcpStream) {
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

#[test]
fn those_that_were_upgraded_close_for_others_whatever_who_has_them_does() {
    for path in ["echoes", "holds"] {
        let running = start(2);
        let mut all: Vec<_> = (0..5).map(|_| one_that_is_upgraded(&running, path)).collect();
        until("the first ones are closed", || all[..3].iter_mut().all(is_closed));
        until("their places are free", || running.counts().open() == 2);
        assert_eq!(gave_way(&running), 3);
        assert!(!all[3..].iter_mut().any(is_closed));
    }
}

#[test]
fn one_that_was_upgraded_is_not_taken_for_silent() {
    let running = start(2);
    let mut upgraded = one_that_is_upgraded(&running, "echoes");
    let mut silent = one_that_says(&running, "");
    // As long as it takes to be taken for silent.
    thread::sleep(Duration::from_millis(100));
    is_echoed(&mut upgraded);
    is_served(&running);
    until("the silent one is closed", || is_closed(&mut silent));
    is_echoed(&mut upgraded);
}

/// A client of HTTP/1.0 knows the end of its response by the close alone.
#[test]
fn a_response_that_makes_room_does_not_look_whole() {
    let running = start(1);
    let mut cut = one_that_says(&running, "GET /endless HTTP/1.0\r\n\r\n");
    let mut answer = Vec::new();
    while !answer.ends_with(b"some") {
        let mut buf = [0; 1024];
        let count = cut.read(&mut buf).unwrap();
        assert!(count > 0, "it has ended");
        answer.extend_from_slice(&buf[..count]);
    }
    assert!(!String::from_utf8_lossy(&answer).contains("chunked"));
    is_served(&running);
    let ended = cut.read(&mut [0; 1]);
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!(gave_way(&running), 1);
    // Nor does one that the end of the grace period cuts off.
    let mut cut = one_that_says(&running, "GET /endless HTTP/1.0\r\n\r\n");
    until("it is in flight", || running.http_counts().in_flight() == 1);
    assert_eq!(running.shutdown(Duration::ZERO).unwrap(), 1);
    assert!(cut.read_to_end(&mut answer).is_err());
}

/// As above, within the time in which its client may still read what the kernel holds.
#[test]
fn a_response_that_has_failed_and_makes_room_does_not_look_whole() {
    let running = start(1);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(32 << 10).unwrap();
    socket.connect(&addr(&running).into()).unwrap();
    let mut cut = TcpStream::from(socket);
    cut.set_read_timeout(Some(GUARD)).unwrap();
    cut.write_all(b"GET /fails HTTP/1.0\r\n\r\n").unwrap();
    until("it has failed", || {
        let counts = running.http_counts();
        counts.requests() == 1 && counts.in_flight() == 0
    });
    is_served(&running);
    until("it has given way", || gave_way(&running) == 1);
    assert!(cut.read_to_end(&mut Vec::new()).is_err());
}

#[test]
fn it_drains_as_any_other() {
    let running = start(2);
    let mut silent = one_that_says(&running, "");
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    assert!(is_closed(&mut silent));
}
