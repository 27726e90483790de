//! How a server ends: what is in flight finishes, what is idle closes, what never ends is aborted
//! and counted.

mod common;

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use futures_lite::{StreamExt, stream};
use http_body_util::BodyExt;
use wakeful::LoopGroup;
use wakeful::accept::{AcceptStrategy, Placement};
use wakeful::task::{consume_budget, has_budget_remaining};
use wakeful_http::{DrainPlan, Limits, Readiness, Running, Server};

use common::*;

/// In flight: its handler runs.
fn gated(running: &Running, gate: &Gate) -> TcpStream {
    let mut stream = raw(running);
    stream.write_all(b"GET /gated HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    gate.wait_for_one();
    stream
}

/// It had its answer and is kept.
fn idle(running: &Running) -> TcpStream {
    let mut stream = raw(running);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        let mut buf = [0; 1024];
        let read = stream.read(&mut buf).unwrap();
        assert!(read > 0, "closed early");
        answer.extend_from_slice(&buf[..read]);
    }
    stream
}

fn until_refused(addr: SocketAddr) {
    until("nobody listens any more", || {
        TcpStream::connect(addr).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
    });
}

#[test]
fn what_is_in_flight_finishes_while_what_is_idle_closes() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    let addr = addr(&running);
    let (idle, silent, busy) = (idle(&running), raw(&running), gated(&running, &gate));
    until("three are open", || running.counts().open() == 3);
    let counts = running.counts();
    let shutdown = thread::spawn(move || running.shutdown(GUARD).unwrap());
    // Both before the gate opens.
    assert_eq!(read_all(idle), "");
    assert_eq!(read_all(silent), "");
    until_refused(addr);
    until("the one in flight is left", || counts.open() == 1);
    gate.open();
    let answer = read_all(busy);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("released"), "{answer}");
    assert_eq!(shutdown.join().unwrap(), 0);
    assert_eq!(counts.open(), 0);
}

/// Connected and sent, but the loops had no time to accept: the kernel's backlog has them when the
/// server is told to end.
#[test]
fn requests_that_wait_in_the_backlog_when_the_server_ends_are_answered() {
    for strategy in [
        AcceptStrategy::Exclusive,
        AcceptStrategy::ReusePort,
        AcceptStrategy::Dispatch(Placement::RoundRobin),
    ] {
        let group = LoopGroup::builder().loops(2);
        let running = server().group(group).strategy(strategy).start(router()).unwrap();
        let addr = addr(&running);
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
        let clients: Vec<_> = (0..50)
            .map(|_| {
                let mut stream = raw(&running);
                stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
                stream
            })
            .collect();
        let handles = running.handles().to_vec();
        let shutdown = thread::spawn(move || running.shutdown(GUARD).unwrap());
        for handle in &handles {
            until("the loop is told", || format!("{handle:?}").contains("empty: false"));
        }
        drop(blocked);
        for client in clients {
            let answer = read_all(client);
            assert!(answer.starts_with("HTTP/1.1 200"), "{strategy}: {answer:?}");
        }
        assert_eq!(shutdown.join().unwrap(), 0, "{strategy}");
        until_refused(addr);
    }
}

/// More clients than the server may have connections: the others wait in the backlog.
#[test]
fn requests_over_the_limit_of_connections_when_the_server_ends_are_answered() {
    for strategy in [
        AcceptStrategy::Exclusive,
        AcceptStrategy::ReusePort,
        AcceptStrategy::Dispatch(Placement::RoundRobin),
    ] {
        let running = server()
            .limits(Limits::new().max_connections(4))
            .strategy(strategy)
            .start(router())
            .unwrap();
        let clients: Vec<_> = (0..40)
            .map(|_| {
                let mut stream = raw(&running);
                stream.write_all(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
                stream
            })
            .collect();
        until("the limit is reached", || running.counts().open() == 4);
        let shutdown = thread::spawn(move || running.shutdown(GUARD).unwrap());
        for client in clients {
            let answer = read_all(client);
            assert!(answer.ends_with("slow"), "{strategy}: {answer:?}");
        }
        assert_eq!(shutdown.join().unwrap(), 0, "{strategy}");
    }
}

#[test]
fn streams_over_the_limit_of_connections_when_the_server_ends_are_answered() {
    let running = server().limits(Limits::new().max_connections(2)).start(router()).unwrap();
    let addr = addr(&running);
    let (answer, answered) = mpsc::channel();
    let clients = thread::spawn(move || {
        wakeful::block_on(async {
            let mut requests = Vec::new();
            for _ in 0..10 {
                let mut sender = http2_client(addr).await;
                let answer = answer.clone();
                requests.push(wakeful::spawn(async move {
                    let response = sender.send_request(request("GET", "/slow", "")).await;
                    let _ = answer.send(response.map(|response| response.status()));
                }));
            }
            for request in requests {
                request.await.unwrap();
            }
        });
    });
    // Then all have asked.
    assert_eq!(answered.recv().unwrap().unwrap(), 200);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    clients.join().unwrap();
    let others: Vec<_> = answered.iter().map(Result::unwrap).collect();
    assert_eq!(others, [200; 9]);
}

#[test]
fn a_request_pipelined_behind_the_last_one_is_not_begun() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    let mut busy = raw(&running);
    let both = "GET /gated HTTP/1.1\r\nhost: x\r\n\r\nGET /gated HTTP/1.1\r\nhost: x\r\n\r\n";
    busy.write_all(both.as_bytes()).unwrap();
    gate.wait_for_one();
    let silent = raw(&running);
    until("two are open", || running.counts().open() == 2);
    // On one loop of two each: so ask both whether the draining has begun.
    let other = self::idle(&running);
    let shutdown = thread::spawn(move || running.shutdown(GUARD).unwrap());
    assert_eq!(read_all(silent), "");
    assert_eq!(read_all(other), "");
    gate.open();
    let answer = read_all(busy);
    assert!(answer.ends_with("released"), "{answer}");
    assert_eq!(shutdown.join().unwrap(), 0);
}

#[test]
fn a_body_that_is_under_way_is_taken_to_its_end() {
    let running = server().start(router()).unwrap();
    let addr = addr(&running);
    let mut stream = raw(&running);
    stream.write_all(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nfirst").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"first") {
        let mut buf = [0; 1024];
        let read = stream.read(&mut buf).unwrap();
        assert!(read > 0, "closed early");
        answer.extend_from_slice(&buf[..read]);
    }
    let shutdown = thread::spawn(move || running.shutdown(GUARD).unwrap());
    until_refused(addr);
    stream.write_all(b"later").unwrap();
    let rest = read_all(stream);
    assert_eq!(rest, "later");
    assert_eq!(shutdown.join().unwrap(), 0);
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_OF_STREAM_AND_HEADERS: u8 = 5;

fn h2_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let stream = stream.to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}

/// The next frame's kind, flags, stream and payload; `None` at the end.
fn next_frame(stream: &mut TcpStream) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut header = [0; 9];
    match stream.read_exact(&mut header) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return None,
        result => result.unwrap(),
    }
    let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
    let id = u32::from_be_bytes(header[5..].try_into().unwrap());
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).unwrap();
    Some((header[3], header[4], id, payload))
}

#[test]
fn http2_says_goaway_and_finishes_its_streams() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    let mut stream = raw(&running);
    // :method GET, :scheme http, a literal :path, a literal :authority.
    let header = [&[0x82, 0x86, 0x04, 6], &b"/gated"[..], &[0x01, 1], b"x"].concat();
    let start = [
        PREFACE,
        &h2_frame(SETTINGS, 0, 0, &[]),
        &h2_frame(HEADERS, END_OF_STREAM_AND_HEADERS, 1, &header),
    ];
    // All in one write: the server's first read has the request too.
    stream.write_all(&start.concat()).unwrap();
    gate.wait_for_one();
    let shutdown = thread::spawn(move || running.shutdown(GUARD).unwrap());
    let (mut goaways, mut body, mut ended) = (Vec::new(), Vec::new(), false);
    while let Some((kind, flags, id, payload)) = next_frame(&mut stream) {
        match kind {
            0 => {
                assert_eq!(id, 1);
                body.extend_from_slice(&payload);
                ended |= flags & 1 != 0;
            }
            SETTINGS if flags & ACK == 0 => {
                stream.write_all(&h2_frame(SETTINGS, ACK, 0, &[])).unwrap();
            }
            PING if flags & ACK == 0 => {
                stream.write_all(&h2_frame(PING, ACK, 0, &payload)).unwrap();
            }
            GOAWAY => {
                let error = u32::from_be_bytes(payload[4..8].try_into().unwrap());
                assert_eq!(error, 0, "no error");
                goaways.push(u32::from_be_bytes(payload[..4].try_into().unwrap()));
                assert!(goaways.len() > 1 || body.is_empty());
                gate.open();
            }
            _ => {}
        }
    }
    assert_eq!(String::from_utf8(body).unwrap(), "released");
    assert!(ended);
    assert_eq!(goaways.last(), Some(&1), "the last stream that was taken: {goaways:?}");
    assert_eq!(shutdown.join().unwrap(), 0);
}

#[test]
fn hyper_s_http2_client_gets_what_it_asked_for_before_and_nothing_behind() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    let addr = addr(&running);
    let client = thread::spawn(move || {
        wakeful::block_on(async {
            let mut client = http2_client(addr).await;
            let mut other = client.clone();
            let response = client.send_request(request("GET", "/gated", "")).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            // The connection is going away, or has gone.
            assert!(other.send_request(request("GET", "/", "")).await.is_err());
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

#[test]
fn an_idle_http2_connection_closes() {
    let running = server().start(router()).unwrap();
    let addr = addr(&running);
    let (tell, told) = mpsc::channel();
    let client = thread::spawn(move || {
        wakeful::block_on(async {
            let mut client = http2_client(addr).await;
            let first = client.send_request(request("GET", "/", "")).await.unwrap();
            first.into_body().collect().await.unwrap();
            tell.send(()).unwrap();
            while client.ready().await.is_ok() {
                wakeful::task::yield_now().await;
            }
        });
    });
    told.recv().unwrap();
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    client.join().unwrap();
}

#[test]
fn what_never_ends_is_aborted_at_the_deadline_and_counted() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    let idle = idle(&running);
    let never = [gated(&running, &gate), gated(&running, &gate)];
    assert_eq!(running.shutdown(Duration::from_millis(50)).unwrap(), 2);
    assert_eq!(read_all(idle), "");
    never.into_iter().for_each(|stream| assert_eq!(read_all(stream), ""));
}

#[test]
fn dropping_a_running_server_aborts() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    let (addr, counts) = (addr(&running), running.counts());
    let (idle, silent, busy) = (idle(&running), raw(&running), gated(&running, &gate));
    until("three are open", || counts.open() == 3);
    drop(running);
    until_refused(addr);
    for stream in [idle, silent, busy] {
        assert_eq!(read_all(stream), "");
    }
    assert_eq!(counts.open(), 0);
}

#[test]
fn an_unused_server_ends_at_once_and_its_port_is_free() {
    let running = server().start(router()).unwrap();
    let addr = addr(&running);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    let again = Server::bind(addr).unwrap().start(router()).unwrap();
    is_served(&again);
}

#[test]
fn a_handler_that_blocks_its_loop_is_reported_and_left_behind() {
    let (enter, entered) = mpsc::channel();
    let app = Router::new().route(
        "/block",
        get(move || {
            let enter = enter.clone();
            async move {
                enter.send(()).unwrap();
                // Longer than a loop is waited for.
                thread::park_timeout(Duration::from_secs(4));
                "late"
            }
        }),
    );
    let server = Server::bind("127.0.0.1:0").unwrap().group(LoopGroup::builder().loops(1));
    let running = server.start(app).unwrap();
    let mut stream = raw(&running);
    stream.write_all(b"GET /block HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    entered.recv().unwrap();
    let error = running.shutdown(Duration::from_millis(10)).unwrap_err();
    assert!(error.to_string().contains("blocked"), "{error}");
}

/// Pieces without an end, but for that of the server.
fn events(readiness: Readiness) -> Body {
    let pieces = stream::unfold(readiness, |readiness| async move {
        let next = async {
            wakeful::time::sleep(Duration::from_millis(1)).await;
            Some(Ok::<_, std::io::Error>(Bytes::from_static(b"data: tick\n\n")))
        };
        let end = async {
            readiness.until_draining().await;
            None
        };
        let piece = futures_lite::future::or(end, next).await?;
        Some((piece, readiness))
    });
    Body::from_stream(pieces)
}

/// A piece, and the end when the server of this loop drains.
fn told() -> Body {
    let begun = stream::once(Ok::<_, std::io::Error>(Bytes::from_static(b"data: tick\n\n")));
    let end = stream::once_future(wakeful_http::drain_begins()).filter_map(|()| None);
    Body::from_stream(begun.chain(end))
}

#[test]
fn a_stream_is_told_and_one_that_does_not_listen_is_aborted_and_counted() {
    let server = server();
    let readiness = server.readiness();
    let app = router()
        .route("/events", get(async move || events(readiness.clone())))
        // On the server's loop nobody has to pass it on.
        .route("/here", get(async || told()))
        .route(
            "/deaf",
            get(async || Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>())),
        );
    let running = server.start(app).unwrap();
    let begin = |path: &str| {
        let mut stream = raw(&running);
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).unwrap();
        assert!(stream.read(&mut [0; 64]).unwrap() > 0);
        stream
    };
    let told = [begin("/events"), begin("/here")];
    let deaf = begin("/deaf");
    assert_eq!(running.shutdown(Duration::from_secs(2)).unwrap(), 1);
    for stream in told {
        assert!(read_all(stream).ends_with("0\r\n\r\n"), "it has come to its end");
    }
    assert!(!read_all(deaf).ends_with("0\r\n\r\n"), "it was cut off");
}

#[test]
fn it_says_that_it_is_not_ready_before_it_drains_and_goes_on() {
    let running = server().start(router()).unwrap();
    let (addr, readiness) = (addr(&running), running.readiness());
    assert!(readiness.is_ready());
    let plan = DrainPlan::new().pre_drain(Duration::from_millis(300));
    let shutdown = thread::spawn(move || running.drain(plan).unwrap());
    futures_lite::future::block_on(readiness.until_not_ready());
    let mut answered = 0;
    while !readiness.is_draining() {
        let Ok(mut stream) = TcpStream::connect(addr) else { break };
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        assert!(read_all(stream).ends_with("hello"));
        answered += 1;
    }
    assert!(answered > 0 && readiness.is_draining());
    futures_lite::future::block_on(readiness.until_draining());
    assert_eq!(shutdown.join().unwrap(), 0);
    until_refused(addr);
}

#[test]
fn who_waits_for_the_end_is_told_when_the_server_is_dropped() {
    let running = server().start(router()).unwrap();
    let readiness = running.readiness();
    drop(running);
    assert!(!readiness.is_ready() && readiness.is_draining());
    futures_lite::future::block_on(readiness.until_draining());
}

/// A handler does this if it selects among its events and the drain, and does not end.
#[test]
fn a_handler_that_asks_for_the_drain_again_and_again_leaves_its_loop_to_others() {
    let group = LoopGroup::builder().loops(1);
    let server = Server::bind("127.0.0.1:0").unwrap().group(group);
    let readiness = server.readiness();
    let (enter, entered) = mpsc::channel();
    let handler = async move || {
        enter.send(()).unwrap();
        wakeful_http::drain_begins().await;
        for asks_here in [true, false] {
            let others = Arc::new(AtomicBool::new(false));
            let mark = others.clone();
            wakeful::spawn(async move { mark.store(true, Ordering::Relaxed) }).detach();
            let mut times = 0;
            while !others.load(Ordering::Relaxed) {
                if asks_here {
                    wakeful_http::drain_begins().await;
                } else {
                    readiness.until_draining().await;
                }
                times += 1;
                assert!(times < 10_000, "no other task had its turn");
            }
        }
        "others had their turns"
    };
    let running = server.start(Router::new().route("/", get(handler))).unwrap();
    let mut stream = raw(&running);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    entered.recv().unwrap();
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    let answer = read_all(stream);
    assert!(answer.ends_with("others had their turns"), "{answer}");
}

/// A handler does this if it serves a flood while it waits for the drain.
#[test]
fn a_drain_is_told_beside_what_spends_the_budget_in_every_poll() {
    async fn is_told(drain: impl Future<Output = ()>) -> bool {
        let (mut drain, mut polls) = (pin!(drain), 0);
        poll_fn(|cx| {
            while has_budget_remaining() {
                assert!(pin!(consume_budget()).poll(cx).is_ready());
            }
            polls += 1;
            match drain.as_mut().poll(cx) {
                Poll::Pending if polls > 1_000 => Poll::Ready(false),
                polled => polled.map(|()| true),
            }
        })
        .await
    }
    let server = server();
    let readiness = server.readiness();
    let (enter, entered) = mpsc::channel();
    let handler = async move || {
        enter.send(()).unwrap();
        wakeful_http::drain_begins().await;
        assert!(is_told(wakeful_http::drain_begins()).await);
        assert!(is_told(readiness.until_draining()).await);
        "told"
    };
    let running = server.start(Router::new().route("/", get(handler))).unwrap();
    let mut stream = raw(&running);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    entered.recv().unwrap();
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
    let answer = read_all(stream);
    assert!(answer.ends_with("told"), "{answer}");
}

/// A log subscriber that is not a good one.
struct PanickingLog(Arc<AtomicUsize>);

impl tracing::Subscriber for PanickingLog {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("a log subscriber that panics, on purpose");
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_log_subscriber_that_panics_aborts_no_request_in_flight() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    let addr = addr(&running);
    let busy = gated(&running, &gate);
    let panics = Arc::new(AtomicUsize::new(0));
    // A second dispatcher: with only one, `tracing` may ask another test's thread, which has none.
    let _second = tracing::Dispatch::new(PanickingLog(panics.clone()));
    let log = PanickingLog(panics.clone());
    let plan = DrainPlan::new().pre_drain(Duration::from_millis(1)).grace(GUARD);
    let drain = thread::spawn(move || {
        tracing::subscriber::with_default(log, || running.drain(plan).unwrap())
    });
    until_refused(addr);
    gate.open();
    let answer = read_all(busy);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("released"), "{answer}");
    assert_eq!(drain.join().unwrap(), 0);
    assert_eq!(panics.load(Ordering::SeqCst), 2, "for each line of the drain");
}
