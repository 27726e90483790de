//! Connections go on to another loop while requests go on: no answer is lost, repeated, or for
//! somebody else.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::{get, post};
use hyper::body::Bytes;
use wakeful::accept::Moves;
use wakeful::group::Targets;
use wakeful::{EventLoop, IdlePolicy, LoopGroup};
use wakeful_http::{AmbiguousLength, Limits, Refusal, Running, Server};

use common::*;

/// Two loops, of which the first one has all connections until it has too much to do, which is
/// soon.
fn moving_server() -> Server {
    let event_loop = EventLoop::builder().idle(IdlePolicy::Park);
    let targets = Targets::new().utilisation(0.05).least(1);
    let group = LoopGroup::builder().loops(2).event_loop(event_loop).concentrate(targets);
    let moves = Moves::new().interval(Duration::from_millis(10));
    Server::bind("127.0.0.1:0").unwrap().group(group).moves(Some(moves))
}

fn work() {
    let began = Instant::now();
    while began.elapsed() < Duration::from_micros(200) {
        std::hint::spin_loop();
    }
}

/// Counts the requests that reach a handler.
fn working_router(served: &Arc<AtomicU64>) -> Router {
    let (gets, posts) = (served.clone(), served.clone());
    let answer_get = async move |Path(n): Path<u64>| {
        work();
        gets.fetch_add(1, Ordering::Relaxed);
        n.to_string()
    };
    let answer_post = async move |body: Bytes| {
        work();
        posts.fetch_add(1, Ordering::Relaxed);
        body
    };
    Router::new().route("/n/{n}", get(answer_get)).route("/n", post(answer_post))
}

/// The body of the next answer on a connection that is kept.
fn answer(stream: &mut BufReader<TcpStream>) -> String {
    let (mut line, mut length) = (String::new(), None);
    stream.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
        assert_ne!(line, "connection: close\r\n");
        if let Some(text) = line.strip_prefix("content-length: ") {
            length = text.trim().parse().ok();
        }
    }
    let mut body = vec![0; length.expect("it has a length")];
    stream.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

/// Three requests at a time on one connection, of which the last one comes in two parts, until it
/// is told to stop, and then a few more. Returns how many.
fn ask_until(stream: TcpStream, first: u64, stop: &AtomicBool) -> u64 {
    let mut stream = BufReader::new(stream);
    stream.get_ref().set_nodelay(true).unwrap();
    let (mut asked, mut rest) = (0, 20);
    while rest > 0 {
        rest -= u64::from(stop.load(Ordering::Relaxed));
        let number = |step: u64| (first + asked + step).to_string();
        let [body, one, two] = [number(0), number(1), number(2)];
        let length = body.len();
        let requests = format!(
            "POST /n HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}\
             GET /n/{one} HTTP/1.1\r\nhost: x\r\n\r\n\
             GET /n/{two} HTTP/1.1\r\nhost: x\r\n\r\n"
        );
        let (now, later) = requests.split_at(requests.len() - 20);
        stream.get_mut().write_all(now.as_bytes()).unwrap();
        assert_eq!(answer(&mut stream), body);
        assert_eq!(answer(&mut stream), one);
        stream.get_mut().write_all(later.as_bytes()).unwrap();
        assert_eq!(answer(&mut stream), two);
        asked += 3;
    }
    asked
}

/// Clients that ask while `meanwhile` runs. Returns how many requests were answered to them.
fn with_clients(running: &Running, meanwhile: impl FnOnce()) -> u64 {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|number| {
                let (stream, stop) = (raw(running), &stop);
                scope.spawn(move || ask_until(stream, number * 1_000_000_000, stop))
            })
            .collect();
        meanwhile();
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    })
}

#[test]
fn connections_move_under_load_and_each_request_is_answered_once() {
    let served = Arc::default();
    let running = moving_server().start(working_router(&served)).unwrap();
    let counts = running.counts();
    let asked = with_clients(&running, || until("one moves", || counts.moved() > 0));
    assert_eq!(served.load(Ordering::Relaxed), asked);
    assert_eq!(counts.accepted(), 3);
    assert!(counts.loops().all(|of_loop| of_loop.turned_away() == 0));
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn a_connection_that_has_moved_is_still_followed_to_the_byte() {
    let served = Arc::default();
    let limits = Limits::new().ambiguous_length(AmbiguousLength::Refuse);
    let running = moving_server().limits(limits).start(working_router(&served)).unwrap();
    let counts = running.counts();
    let asked = with_clients(&running, || until("one moves", || counts.moved() > 0));
    assert_eq!(served.load(Ordering::Relaxed), asked);
    assert_eq!(running.http_counts().refused(Refusal::AmbiguousLength), 0);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn without_moves_they_stay() {
    let served = Arc::<AtomicU64>::default();
    let running = moving_server().moves(None).start(working_router(&served)).unwrap();
    let load = running.loads();
    // What moves them in the other test.
    with_clients(&running, || until("the other loop is active", || load.active() == 2));
    assert_eq!(running.counts().moved(), 0);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

/// Its pieces say where they were made.
fn endless(stop: Arc<AtomicBool>) -> Body {
    Body::from_stream(futures_lite::stream::unfold(0_u64, move |number| {
        let stop = stop.clone();
        async move {
            wakeful::time::sleep(Duration::from_millis(1)).await;
            let here = thread::current().name().map(str::to_owned).unwrap_or_default();
            let piece = format!("{number} {here}");
            (!stop.load(Ordering::Relaxed)).then(|| (Ok::<_, std::io::Error>(piece), number + 1))
        }
    }))
}

#[test]
fn a_response_that_streams_stays_where_it_is() {
    let (served, stop) = (Arc::default(), Arc::<AtomicBool>::default());
    let told = stop.clone();
    let router = working_router(&served).route("/endless", get(async move || endless(told)));
    let running = moving_server().start(router).unwrap();
    let counts = running.counts();
    let mut stream = BufReader::new(raw(&running));
    stream.get_mut().write_all(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0);
    }
    with_clients(&running, || until("one moves", || counts.moved() > 0));
    stop.store(true, Ordering::Relaxed);
    let (mut pieces, mut made_by) = (0, None::<String>);
    loop {
        let [mut length, mut piece] = [const { String::new() }; 2];
        stream.read_line(&mut length).unwrap();
        stream.read_line(&mut piece).unwrap();
        if length == "0\r\n" {
            break;
        }
        let (number, here) = piece.trim_end().split_once(' ').unwrap();
        assert_eq!(number.parse(), Ok(pieces));
        assert_eq!(made_by.get_or_insert_with(|| here.to_owned()), here);
        pieces += 1;
    }
    assert!(pieces > 0);
    // And it is kept.
    stream.get_mut().write_all(b"GET /n/7 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert_eq!(answer(&mut stream), "7");
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

/// How many requests are answered until the server says that it was the last one.
fn ask_until_the_last(stream: TcpStream) -> u64 {
    let mut stream = BufReader::new(stream);
    stream.get_ref().set_nodelay(true).unwrap();
    for asked in 1.. {
        stream.get_mut().write_all(b"GET /n/1 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let (mut line, mut is_last) = (String::new(), false);
        while line != "\r\n" {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap() > 0, "closed behind {asked}");
            is_last |= line == "connection: close\r\n";
        }
        stream.read_exact(&mut [0; 1]).unwrap();
        if is_last {
            return asked;
        }
    }
    unreachable!("so many are not asked")
}

#[test]
fn what_a_connection_has_behind_it_goes_along() {
    const MOST: u64 = 500;
    let limits = Limits::new().max_requests_per_connection(MOST).max_connections_per_peer(3);
    let served = Arc::default();
    let running = moving_server().limits(limits).start(working_router(&served)).unwrap();
    let counts = running.counts();
    until("one moves", || {
        thread::scope(|scope| {
            for _ in 0..3 {
                let stream = raw(&running);
                scope.spawn(move || assert_eq!(ask_until_the_last(stream), MOST));
            }
        });
        until("their places are free", || counts.open() == 0);
        counts.moved() > 0
    });
    assert_eq!(running.http_counts().refused(Refusal::PeerConnections), 0);
    // A connection has its place when its loop has turned to it: by its first answer.
    let places = [(); 3].map(|()| {
        let mut stream = raw(&running);
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 8]).unwrap();
        stream
    });
    assert!(read_all(raw(&running)).starts_with("HTTP/1.1 503"));
    drop(places);
}
