//! Kernels without EPOLLEXCLUSIVE. What such a kernel does is found out once for the whole process,
//! so each case is a process of its own: this binary, started again by the test with
//! `WAKEFUL_EPOLLEXCLUSIVE` (debug builds).
#![cfg(debug_assertions)]

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, thread};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata};
use wakeful::accept::{ConnectionServer, SharedListener};
use wakeful::{EventLoop, LoopGroup};

const CASE: &str = "WAKEFUL_EPOLLEXCLUSIVE";
/// Set: the subscriber registers a socket, on the loop on whose thread it is called.
const REGISTERS: &str = "WAKEFUL_TEST_SUBSCRIBER_REGISTERS";
const CONNECTIONS: u64 = 100;

/// Counts the warnings of whoever tries the flag. (On a busy machine there are some of slow turns.)
struct Warnings(AtomicUsize);

static WARNINGS: Warnings = Warnings(AtomicUsize::new(0));

impl tracing::Subscriber for &'static Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target().ends_with("exclusive")
    }

    fn event(&self, _event: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        if env::var_os(REGISTERS).is_some() {
            drop(wakeful::net::UnixStream::pair().unwrap());
        }
    }

    fn new_span(&self, _attributes: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

/// Starts this binary again for one test and one kernel.
fn on_a_kernel_that(case: &str) {
    passes("every_connection_is_served", Command::new(env::current_exe().unwrap()).env(CASE, case));
}

fn passes(test: &str, command: &mut Command) {
    let child =
        command.args(["--exact", test, "--nocapture", "--include-ignored"]).output().unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && text.contains("1 passed"), "{text}{errors}");
}

#[test]
fn a_kernel_that_refuses_epollexclusive_serves_without() {
    on_a_kernel_that("refused");
}

#[test]
fn a_kernel_that_ignores_epollexclusive_serves_without() {
    on_a_kernel_that("ignored");
}

/// The line is logged while a listener is being registered.
#[test]
fn a_subscriber_may_register_a_socket_of_its_own() {
    let mut command = Command::new(env::current_exe().unwrap());
    passes("a_listener_is_attached", command.env(CASE, "refused").env(REGISTERS, "1"));
}

#[test]
#[ignore = "run by another one, in a process of its own"]
fn a_listener_is_attached() {
    tracing::subscriber::set_global_default(&WARNINGS).unwrap();
    let listener = SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
    wakeful::block_on(async { listener.attach().map(drop) }).unwrap();
    let expected = usize::from(env::var_os(CASE).is_some());
    assert_eq!(WARNINGS.0.load(Ordering::Relaxed), expected, "the log says it once");
}

#[test]
#[ignore = "run by the others, in a process of its own"]
fn every_connection_is_served() {
    tracing::subscriber::set_global_default(&WARNINGS).unwrap();
    let listeners =
        [(); 2].map(|()| SharedListener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap());
    let addrs = listeners.each_ref().map(|listener| listener.socket_addr().unwrap());
    // On a busy machine it has slow turns to warn of.
    let quiet = EventLoop::builder().slow_turn(Duration::MAX);
    let running = ConnectionServer::new(listeners.into())
        .group(LoopGroup::builder().loops(3).spread().event_loop(quiet))
        .start(|| {
            async |mut connection| {
                let _ = connection.stream.write_all(b"!").await;
            }
        })
        .unwrap();
    let clients = addrs.map(|addr| {
        thread::spawn(move || {
            for _ in 0..CONNECTIONS {
                let mut client = std::net::TcpStream::connect(addr).unwrap();
                client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                std::io::Read::read_exact(&mut client, &mut [0; 1]).unwrap();
            }
        })
    });
    clients.into_iter().for_each(|client| client.join().unwrap());
    let counts = running.counts();
    assert_eq!((counts.accepted(), counts.failed()), (2 * CONNECTIONS, 0));
    let expected = usize::from(env::var_os(CASE).is_some());
    assert_eq!(WARNINGS.0.load(Ordering::Relaxed), expected, "the log says it once");
    running.shutdown(Duration::from_secs(20)).unwrap();
}
