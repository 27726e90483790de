//! A signal that comes twice at once is one: `timeout(1)` and terminals signal a process and then
//! its group. And one that comes while the server waits for its set-ups ends it. Signals reach the
//! whole process, so each test waits for its turn.

mod common;

use std::future::pending;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use rustix::process::{Signal, getpid, kill_process};
use wakeful::net::ListenAddr;
use wakeful_http::Server;

use common::*;

static TURN: Mutex<()> = Mutex::new(());

#[test]
fn a_server_that_is_awaited_and_is_signalled_twice_at_once_finishes_its_requests() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (enter, entered) = async_channel::bounded(1);
    let answered = Arc::<AtomicBool>::default();
    let of_handler = answered.clone();
    let handler = async move || {
        enter.send(()).await.unwrap();
        wakeful::time::sleep(Duration::from_millis(300)).await;
        of_handler.store(true, SeqCst);
        "finished"
    };
    let server = server();
    let Some(ListenAddr::Tcp(addr)) = server.local_addrs().next().cloned() else { unreachable!() };
    let client = thread::spawn(move || {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        entered.recv_blocking().unwrap();
        for _ in 0..2 {
            kill_process(getpid(), Signal::TERM).unwrap();
            thread::sleep(Duration::from_millis(10));
        }
        read_all(stream)
    });
    let running = server.run(Router::new().route("/", get(handler)));
    wakeful::block_on(running).unwrap();
    assert!(answered.load(SeqCst), "it did not wait for its request");
    assert!(client.join().unwrap().ends_with("finished"));
}

#[test]
fn a_server_whose_set_up_never_ends_ends_by_a_signal() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let serve = |server: Server| server.serve(router());
    let run = |server: Server| wakeful::block_on(server.run(router()));
    for serve in [serve as fn(Server) -> io::Result<()>, run] {
        let (ended, end) = mpsc::channel();
        let waiting = server().on_each_loop(|| async {
            kill_process(getpid(), Signal::TERM).unwrap();
            pending().await
        });
        thread::spawn(move || ended.send(serve(waiting).map_err(|error| error.to_string())));
        let result = end.recv_timeout(GUARD).expect("the signal ends it");
        assert_eq!(result, Ok(()));
    }
}
