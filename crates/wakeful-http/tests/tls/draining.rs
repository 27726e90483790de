//! How connections by TLS end with their server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::client::conn::http2;
use wakeful::io::LoopExecutor;
use wakeful_http::DrainPlan;

use crate::common::{GUARD, Gate, addr, raw as plain, read_all, request, router, server, until};
use crate::material::Site;
use crate::raw::{GET, Raw, ask, config, connect, rest, shake};

fn until_refused(addr: std::net::SocketAddr) {
    until("nobody listens any more", || TcpStream::connect(addr).is_err());
}

#[test]
fn what_is_in_flight_finishes_while_what_is_idle_is_told_that_it_ends() {
    let site = Site::new();
    let (gate, app) = Gate::on(router());
    let running = server().tls(site.tls()).start(app).unwrap();
    let client = || connect(addr(&running), config(&site.ca()));
    let (mut idle, silent, mut busy) = (client(), plain(&running), client());
    ask(&mut idle);
    busy.write_all(b"GET /gated HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    gate.wait_for_one();
    until("three are open", || running.counts().open() == 3);
    let (addr, counts) = (addr(&running), running.counts());
    let shutdown = thread::spawn(move || running.shutdown(GUARD).unwrap());
    // Both before the gate opens.
    assert_eq!(rest(&mut idle).unwrap(), "");
    assert_eq!(read_all(silent), "");
    until_refused(addr);
    until("the one in flight is left", || counts.open() == 1);
    gate.open();
    let answer = rest(&mut busy).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("released"), "{answer}");
    assert_eq!(shutdown.join().unwrap(), 0);
}

/// Sends its part of the handshake as far as it can without an answer.
fn greet(client: &mut Raw) {
    while client.conn.wants_write() {
        client.conn.write_tls(&mut client.sock).unwrap();
    }
}

#[test]
fn a_client_within_its_handshake_may_finish_it_and_ask_one_request() {
    let site = Site::new();
    let (gate, app) = Gate::on(router());
    let running = server().tls(site.tls()).start(app).unwrap();
    let mut busy = connect(addr(&running), config(&site.ca()));
    busy.write_all(b"GET /gated HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    gate.wait_for_one();
    let mut late = connect(addr(&running), config(&site.ca()));
    greet(&mut late);
    // Its answer is here, so the server is within the handshake.
    late.sock.peek(&mut [0]).unwrap();
    let addr = addr(&running);
    let shutdown = thread::spawn(move || running.shutdown(GUARD).unwrap());
    until_refused(addr);
    shake(&mut late).unwrap();
    late.write_all(GET).unwrap();
    let answer = rest(&mut late).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    gate.open();
    assert!(rest(&mut busy).unwrap().ends_with("released"));
    assert_eq!(shutdown.join().unwrap(), 0);
}

/// As without TLS. Its handshake was over long before.
#[test]
fn a_first_request_that_is_on_its_way_when_the_server_ends_is_answered() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let mut late = connect(addr(&running), config(&site.ca()));
    shake(&mut late).unwrap();
    // Longer than a client that has made its handshake during a drain may take.
    thread::sleep(Duration::from_millis(1200));
    let addr = addr(&running);
    let plan = DrainPlan::new().linger(GUARD).grace(4 * GUARD);
    let drain = thread::spawn(move || running.drain(plan).unwrap());
    until_refused(addr);
    // Each loop has been told by now.
    thread::sleep(Duration::from_millis(100));
    late.write_all(GET).unwrap();
    let answer = rest(&mut late).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(drain.join().unwrap(), 0);
}

/// Accepted out of the backlog of a server whose loops had no time.
#[test]
fn clients_that_wait_in_the_backlog_when_the_server_ends_are_answered() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let mut blocked = Vec::new();
    for handle in running.handles() {
        let (held, is_held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        handle
            .post(move || {
                held.send(()).unwrap();
                let _ = released.recv();
            })
            .unwrap();
        is_held.recv().unwrap();
        blocked.push(release);
    }
    let mut clients: Vec<_> =
        (0..20).map(|_| connect(addr(&running), config(&site.ca()))).collect();
    clients.iter_mut().for_each(greet);
    let handles = running.handles().to_vec();
    let shutdown = thread::spawn(move || running.shutdown(GUARD).unwrap());
    for handle in &handles {
        until("the loop is told", || format!("{handle:?}").contains("empty: false"));
    }
    drop(blocked);
    // At once, as clients are.
    let answers: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            thread::spawn(move || {
                client.write_all(GET).unwrap();
                rest(&mut client).unwrap()
            })
        })
        .collect();
    for answer in answers {
        let answer = answer.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
    }
    assert_eq!(shutdown.join().unwrap(), 0);
}

#[test]
fn a_client_within_its_handshake_cannot_hold_up_the_end() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let mut half = connect(addr(&running), config(&site.ca()));
    greet(&mut half);
    half.sock.peek(&mut [0]).unwrap();
    let grace = Duration::from_millis(50);
    assert_eq!(running.shutdown(grace).unwrap(), 1, "aborted, and counted");
    let mut rest = Vec::new();
    // What was sent before, and the end.
    let _ = half.sock.read_to_end(&mut rest);
}

#[test]
fn http2_finishes_its_streams_and_says_that_it_ends() {
    let site = Site::new();
    let (gate, app) = Gate::on(router());
    let running = server().tls(site.tls()).start(app).unwrap();
    let (addr, tls) = (addr(&running), site.client().build().unwrap());
    let client = thread::spawn(move || {
        wakeful::block_on(async {
            let stream = wakeful::net::TcpStream::connect(addr).await.unwrap();
            let stream = tls.connect(stream, "localhost").await.unwrap();
            let (mut client, connection) =
                http2::Builder::new(LoopExecutor).handshake(stream).await.unwrap();
            // A connection that is cut would be an error.
            let ended = wakeful::spawn(connection);
            let response = client.send_request(request("GET", "/gated", "")).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            ended.await.unwrap().unwrap();
            body
        })
    });
    gate.wait_for_one();
    let shutdown = thread::spawn(move || running.shutdown(GUARD).unwrap());
    until_refused(addr);
    gate.open();
    assert_eq!(client.join().unwrap(), "released");
    assert_eq!(shutdown.join().unwrap(), 0);
}
