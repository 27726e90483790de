//! A signal that comes twice at once is one: `timeout(1)` and terminals signal a process and then
//! its group.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use rustix::process::{Signal, getpid, kill_process};
use wakeful::net::ListenAddr;

use common::*;

#[test]
fn a_server_that_is_awaited_and_is_signalled_twice_at_once_finishes_its_requests() {
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
