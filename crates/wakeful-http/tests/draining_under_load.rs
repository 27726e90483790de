//! A server that ends in the middle of a load loses no request: each one that was sent is answered,
//! and then nobody listens any more.

mod common;

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use wakeful::LoopGroup;
use wakeful::accept::{AcceptStrategy, Placement};
use wakeful::io::LoopExecutor;
use wakeful::net::TcpStream;
use wakeful::time::sleep;
use wakeful_http::DrainPlan;

use common::*;

/// In all, 5,000 requests a second, if the machine can: 2,000 on connections of HTTP/1.1 that are
/// kept, 1,000 on new ones, 2,000 on streams.
const PACE: Duration = Duration::from_millis(10);
const KEPT: u64 = 20;
const NEW: u64 = 10;
const STREAMS: u64 = 20;

/// What the clients saw.
#[derive(Default)]
struct Seen {
    answered: Cell<u64>,
    refused: Cell<u64>,
}

impl Seen {
    fn add(counter: &Cell<u64>) {
        counter.set(counter.get() + 1);
    }
}

/// `None`: nobody listens any more, which is how each client ends.
async fn connect(addr: SocketAddr, seen: &Seen) -> Option<TcpStream> {
    match TcpStream::connect(addr).await {
        Ok(stream) => Some(stream),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            Seen::add(&seen.refused);
            None
        }
        Err(error) => panic!("a connection is taken or refused: {error}"),
    }
}

async fn read(response: http::Response<Incoming>, number: u64, seen: &Seen) {
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.expect("the body is whole").to_bytes();
    assert_eq!(body, number.to_string());
    Seen::add(&seen.answered);
}

fn ask(number: u64) -> http::Request<Full<Bytes>> {
    request("GET", &format!("/n/{number}"), "")
}

/// One request after the other on a connection, and on a new one when the server has said that it
/// closes.
async fn keep(addr: SocketAddr, seen: Rc<Seen>) {
    let mut number = 0;
    while let Some(stream) = connect(addr, &seen).await {
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        wakeful::spawn(connection).detach();
        // Not ready: told to close with the last response.
        while sender.ready().await.is_ok() {
            number += 1;
            match sender.send_request(ask(number)).await {
                Ok(response) => read(response, number, &seen).await,
                // It never left: the connection closed first, as it was told.
                Err(error) if error.is_canceled() => break,
                Err(error) => panic!("request {number} of a kept connection is lost: {error:?}"),
            }
            sleep(PACE).await;
        }
    }
}

/// Each request on a connection of its own.
async fn connect_anew(addr: SocketAddr, seen: Rc<Seen>) {
    let mut number = 0;
    while let Some(stream) = connect(addr, &seen).await {
        number += 1;
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        wakeful::spawn(connection).detach();
        match sender.send_request(ask(number)).await {
            Ok(response) => read(response, number, &seen).await,
            Err(error) => panic!("request {number} of a new connection is lost: {error:?}"),
        }
        sleep(PACE).await;
    }
}

/// Streams of one connection, side by side, and another connection when it goes away.
async fn stream(addr: SocketAddr, seen: Rc<Seen>) {
    let mut number = 0;
    while let Some(stream) = connect(addr, &seen).await {
        let builder = http2::Builder::new(LoopExecutor);
        let (mut sender, connection) = builder.handshake(stream).await.unwrap();
        wakeful::spawn(connection).detach();
        while sender.ready().await.is_ok() {
            let both = [number + 1, number + 2];
            number += 2;
            let sent = both.map(|number| (number, sender.send_request(ask(number))));
            for (number, response) in sent {
                match response.await {
                    Ok(response) => read(response, number, &seen).await,
                    // It never left: the client knew already that the connection goes away.
                    Err(error) if error.is_canceled() || was_not_sent(&error) => {}
                    Err(error) => panic!("stream {number} is lost: {error:?}"),
                }
            }
            sleep(PACE).await;
        }
    }
}

/// h2 refuses a new stream by itself, once it has a GOAWAY: the one that says that the server has
/// no error.
fn was_not_sent(error: &hyper::Error) -> bool {
    use std::error::Error;
    let h2 = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    h2.is_some_and(|h2| h2.is_go_away() && h2.reason() == Some(h2::Reason::NO_ERROR))
}

/// Drains a server in the middle of the load, with `plan`; returns how many requests its handlers
/// began.
fn drain(strategy: AcceptStrategy, plan: DrainPlan) {
    let served = Arc::new(AtomicU64::new(0));
    let counted = served.clone();
    let app = Router::new().route(
        "/n/{n}",
        get(async move |Path(n): Path<u64>| {
            counted.fetch_add(1, Ordering::Relaxed);
            // Some are in flight when it drains.
            if n % 4 == 0 {
                sleep(Duration::from_millis(3)).await;
            }
            n.to_string()
        }),
    );
    let group = LoopGroup::builder().loops(2);
    let running = server().group(group).strategy(strategy).start(app).unwrap();
    let (addr, readiness) = (addr(&running), running.readiness());
    let under_way = Arc::new(AtomicBool::new(false));
    let clients = thread::spawn({
        let under_way = under_way.clone();
        move || {
            wakeful::block_on(async {
                let seen = Rc::<Seen>::default();
                let mut tasks = Vec::new();
                for _ in 0..KEPT {
                    tasks.push(wakeful::spawn(keep(addr, seen.clone())));
                }
                for _ in 0..NEW {
                    tasks.push(wakeful::spawn(connect_anew(addr, seen.clone())));
                }
                for _ in 0..STREAMS / 2 {
                    tasks.push(wakeful::spawn(stream(addr, seen.clone())));
                }
                while seen.answered.get() < 2000 {
                    sleep(PACE).await;
                }
                under_way.store(true, Ordering::Relaxed);
                for task in tasks {
                    task.await.unwrap();
                }
                (seen.answered.get(), seen.refused.get())
            })
        }
    });
    until("the load is under way", || {
        assert!(!clients.is_finished() || under_way.load(Ordering::Relaxed), "a client failed");
        under_way.load(Ordering::Relaxed)
    });
    assert!(readiness.is_ready());
    assert_eq!(running.drain(plan).unwrap(), 0, "{strategy}: nothing is aborted");
    assert!(readiness.is_draining() && !readiness.is_ready());
    let (answered, refused) = clients.join().unwrap();
    assert_eq!(answered, served.load(Ordering::Relaxed), "{strategy}: all that began, and no more");
    assert_eq!(refused, KEPT + NEW + STREAMS / 2, "{strategy}: that is how each client ends");
}

#[test]
fn no_request_is_lost_whatever_the_strategy() {
    for strategy in [
        AcceptStrategy::Exclusive,
        AcceptStrategy::ReusePort,
        AcceptStrategy::Dispatch(Placement::RoundRobin),
    ] {
        for _ in 0..3 {
            drain(strategy, DrainPlan::new().grace(GUARD));
        }
    }
}

#[test]
fn no_request_is_lost_with_a_delay_before() {
    let pre_drain = Duration::from_millis(200);
    drain(AcceptStrategy::Exclusive, DrainPlan::new().pre_drain(pre_drain).grace(GUARD));
}
