//! A server that accepts connections, and closes each at once: a relay whose own server is gone.

use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use wakeful_load::{Plan, Protocol, Requests, Schedule, Template};

/// No test may take longer.
const LONG: Duration = Duration::from_secs(60);

/// While one connection is filled with requests, others break and are opened again.
#[test]
fn a_closed_loop_ends_although_each_connection_breaks_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string().parse().unwrap();
    thread::spawn(move || while listener.accept().is_ok() {});
    let plan = Plan::new(target)
        .requests(Requests::new(Protocol::Frames, &Template::of_size(16)).unwrap())
        .schedule(Schedule::Closed)
        .connections(256)
        .in_flight(64)
        .warm_up(Duration::ZERO)
        .duration(Duration::from_millis(100))
        .patience(Duration::from_millis(100));
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(plan.run().map(|_| ())));
    result.recv_timeout(LONG).expect("the run ends").expect_err("no request is answered");
}
