//! A server at its limit of connections closes idle ones for those that wait, and loses no request
//! by that.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use wakeful::accept::{AcceptStrategy, Moves, Placement};
use wakeful::group::Targets;
use wakeful::{EventLoop, IdlePolicy, LoopGroup};
use wakeful_http::{Limits, Refusal, Running};

use common::*;

/// Far longer than any test takes: nothing but the limit of connections closes one.
fn at_most(connections: usize) -> Limits {
    let never = 100 * GUARD;
    Limits::new().max_connections(connections).idle_timeout(never).header_timeout(never)
}

/// A client that keeps its connection.
struct Kept(BufReader<TcpStream>);

struct Answer {
    body: String,
    is_last: bool,
}

impl Kept {
    fn new(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        Self(BufReader::new(stream))
    }

    /// One that has had an answer, and is idle.
    fn idle(running: &Running) -> Self {
        let mut kept = Self::new(addr(running));
        let answer = kept.get("/").expect("an answer");
        assert!(!answer.is_last);
        assert_eq!(answer.body, "hello");
        kept
    }

    /// `None`: it was closed without an answer.
    fn get(&mut self, path: &str) -> Option<Answer> {
        self.send(path)?;
        self.answer()
    }

    fn send(&mut self, path: &str) -> Option<()> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).ok()
    }

    fn answer(&mut self) -> Option<Answer> {
        let (mut length, mut is_last, mut line) = (0, false, String::new());
        while line != "\r\n" {
            line.clear();
            match self.0.read_line(&mut line) {
                Ok(0) => return None,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                read => read.expect("an answer"),
            };
            is_last |= line == "connection: close\r\n";
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        Some(Answer { body: String::from_utf8(body).unwrap(), is_last })
    }

    /// Has the server closed it?
    fn is_closed(&mut self) -> bool {
        self.0.get_ref().set_nonblocking(true).unwrap();
        let read = self.0.read(&mut [0; 1]);
        self.0.get_ref().set_nonblocking(false).unwrap();
        !matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

fn waits_and_is_served(addr: SocketAddr) {
    let mut stream = Kept::new(addr);
    let answer = stream.get("/").expect("an answer");
    assert_eq!(answer.body, "hello");
}

fn gave_way(running: &Running) -> u64 {
    running.http_counts().refused(Refusal::GaveWay)
}

#[test]
fn the_one_that_is_idle_for_longest_closes_for_one_that_waits() {
    let group = LoopGroup::builder().loops(1);
    let running = server().group(group).limits(at_most(4)).start(router()).unwrap();
    let mut kept: Vec<_> = (0..4).map(|_| Kept::idle(&running)).collect();
    // Not the one that came first.
    assert_eq!(kept[0].get("/").unwrap().body, "hello");
    is_served(&running);
    until("the oldest is closed", || kept[1].is_closed());
    assert_eq!(gave_way(&running), 1);
    for at in [0, 2, 3] {
        let answer = kept[at].get("/").expect("it is kept");
        assert!(!answer.is_last);
    }
}

#[test]
fn it_does_wherever_the_idle_ones_are_and_whichever_loop_accepts() {
    for strategy in [
        AcceptStrategy::Exclusive,
        AcceptStrategy::ReusePort,
        AcceptStrategy::Dispatch(Placement::RoundRobin),
    ] {
        let running = server().strategy(strategy).limits(at_most(3)).start(router()).unwrap();
        let mut kept: Vec<_> = (0..3).map(|_| Kept::idle(&running)).collect();
        // Newcomers that stay.
        let mut new: Vec<_> = (0..3).map(|_| Kept::idle(&running)).collect();
        // The kernel does not say how many wait: more may be asked, but not twice as many.
        let asked = gave_way(&running);
        assert!((3..6).contains(&asked), "{strategy:?}: {asked}");
        until("those that were asked are closed", || {
            kept.retain_mut(|kept| !kept.is_closed());
            // On one of the loops a new one may be the oldest.
            new.retain_mut(|new| !new.is_closed());
            kept.len() + new.len() <= 3
        });
    }
}

#[test]
fn with_a_dispatcher_the_idle_one_is_asked_on_the_other_loop() {
    let strategy = AcceptStrategy::Dispatch(Placement::RoundRobin);
    // Both are active.
    let group = LoopGroup::builder().loops(2).spread();
    let running =
        server().group(group).strategy(strategy).limits(at_most(1)).start(router()).unwrap();
    let counts = running.counts();
    let on_other_loop = || counts.loops().nth(1).unwrap().open() == 1;
    // The first loop accepts. One of two connections goes to the other one.
    let mut kept = Kept::idle(&running);
    if !on_other_loop() {
        drop(kept);
        until("it is closed", || running.counts().open() == 0);
        kept = Kept::idle(&running);
    }
    assert!(on_other_loop());
    is_served(&running);
    assert!(kept.is_closed());
    assert_eq!(gave_way(&running), 1);
}

#[test]
fn while_nobody_waits_all_are_kept() {
    let running = server().limits(at_most(2)).start(router()).unwrap();
    let mut kept: Vec<_> = (0..2).map(|_| Kept::idle(&running)).collect();
    // The limit is reached for longer than a newcomer would have to wait.
    thread::sleep(Duration::from_millis(700));
    for kept in &mut kept {
        assert!(!kept.get("/").expect("it is kept").is_last);
    }
    assert_eq!(gave_way(&running), 0);
}

#[test]
fn a_request_that_was_on_its_way_is_answered() {
    let running = server().limits(at_most(1)).start(router()).unwrap();
    // It is only certain to be in time if this thread gets its turn within 200 ms.
    for attempt in 1.. {
        assert!(attempt < 50, "no request was answered");
        let mut kept = Kept::idle(&running);
        let addr = addr(&running);
        let answer = thread::scope(|scope| {
            let before = gave_way(&running);
            scope.spawn(move || waits_and_is_served(addr));
            until("it was asked to close", || gave_way(&running) > before);
            kept.get("/n/7")
        });
        if let Some(answer) = answer {
            assert_eq!(answer.body, "7");
            assert!(answer.is_last);
            assert!(kept.answer().is_none());
            return;
        }
        drop(kept);
        until("it is closed", || running.counts().open() == 0);
    }
}

#[test]
fn where_none_is_idle_the_next_response_is_the_last_one() {
    let (gate, app) = Gate::on(router());
    let running = server().limits(at_most(1)).start(app).unwrap();
    let mut busy = Kept::new(addr(&running));
    busy.send("/gated").unwrap();
    gate.wait_for_one();
    let addr = addr(&running);
    thread::scope(|scope| {
        scope.spawn(move || waits_and_is_served(addr));
        until("it was asked to close", || gave_way(&running) == 1);
        gate.open();
        let answer = busy.answer().expect("what is in flight is answered");
        assert_eq!(answer.body, "released");
        assert!(answer.is_last);
    });
}

#[test]
fn an_idle_connection_of_http2_leaves_by_goaway_and_one_with_a_request_stays() {
    let (gate, app) = Gate::on(router());
    let running = server().limits(at_most(2)).start(app).unwrap();
    let mut busy = frames::Client::new(&running);
    busy.get(1, "/gated");
    gate.wait_for_one();
    let mut idle = frames::Client::new(&running);
    idle.get(1, "/");
    assert_eq!(idle.wait_for(frames::DATA).payload, b"hello");
    let addr = addr(&running);
    thread::scope(|scope| {
        scope.spawn(move || waits_and_is_served(addr));
        assert_eq!(idle.goaway(), frames::NO_ERROR);
    });
    assert_eq!(gave_way(&running), 1);
    busy.get(3, "/");
    assert_eq!(busy.wait_for(frames::DATA).payload, b"hello");
    gate.open();
    assert_eq!(busy.wait_for(frames::DATA).payload, b"released");
}

/// Connections, one of which has come from another loop and is idle there, when more clients come
/// than there is room for. `act` gets the connections and the server.
fn after_a_move(act: impl FnOnce(&mut [Kept], &Running)) {
    let work = async || {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(10) {
            std::hint::spin_loop();
        }
        "hello"
    };
    let (gate, app) = Gate::on(Router::new().route("/", get(work)));
    let event_loop = EventLoop::builder().idle(IdlePolicy::Park);
    let targets = Targets::new().utilisation(0.05).least(1);
    let group = LoopGroup::builder().loops(2).event_loop(event_loop).concentrate(targets);
    let moves = Moves::new().interval(Duration::from_millis(10));
    let server = server().group(group).moves(Some(moves));
    let running = server.limits(at_most(3)).start(app).unwrap();
    let counts = running.counts();
    let mut kept: Vec<_> = (0..3).map(|_| Kept::idle(&running)).collect();
    let mut turns = (0..3).cycle();
    until("one moves", || {
        let is_moved = counts.moved() > 0;
        if !is_moved {
            assert!(!kept[turns.next().unwrap()].get("/").expect("it is kept").is_last);
            // If it moves, it does so after its answer.
            thread::sleep(Duration::from_millis(2));
        }
        is_moved
    });
    let busy: Vec<_> = (0..3)
        .map(|_| {
            let mut busy = Kept::new(addr(&running));
            busy.send("/gated").unwrap();
            busy
        })
        .collect();
    act(&mut kept, &running);
    gate.open();
    drop(busy);
}

#[test]
fn one_that_came_from_another_loop_and_had_no_request_there_is_asked_too() {
    after_a_move(|kept, running| {
        until("all have made room", || running.http_counts().in_flight() == 3);
        assert!(kept.iter_mut().all(Kept::is_closed));
    });
}

#[test]
fn one_that_came_from_another_loop_and_was_asked_closes_after_its_request() {
    after_a_move(|kept, running| {
        until("all are asked", || gave_way(running) >= 3);
        assert!(kept.iter_mut().all(|one| one.get("/").is_none_or(|answer| answer.is_last)));
    });
}

struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// More clients than places, which pause for as long as a connection that was asked waits for its
/// last request.
#[test]
fn each_request_that_reaches_its_handler_is_answered_while_connections_come_and_go() {
    let served = Arc::<AtomicU64>::default();
    let count = served.clone();
    let answer = async move || {
        count.fetch_add(1, Ordering::Relaxed);
        "hello"
    };
    let app = Router::new().route("/", get(answer));
    let running = server().limits(at_most(3)).start(app).unwrap();
    let (stop, answered, last) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let addr = addr(&running);
    thread::scope(|scope| {
        // Also where this fails: the clients are waited for.
        let _stops = Stops(&stop);
        for client in 0..8 {
            let (stop, answered, last) = (&stop, &answered, &last);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(client);
                let mut kept = Kept::new(addr);
                while !stop.load(Ordering::Relaxed) {
                    match kept.get("/") {
                        Some(answer) => {
                            answered.fetch_add(1, Ordering::Relaxed);
                            last.fetch_add(u64::from(answer.is_last), Ordering::Relaxed);
                            if answer.is_last {
                                kept = Kept::new(addr);
                            }
                        }
                        None => kept = Kept::new(addr),
                    }
                    thread::sleep(Duration::from_millis(random.u64(0..250)));
                }
            });
        }
        until("many gave way", || gave_way(&running) > 20);
    });
    assert_eq!(served.load(Ordering::Relaxed), answered.load(Ordering::Relaxed));
    assert!(last.load(Ordering::Relaxed) > 0);
}
