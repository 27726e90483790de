//! A handler that panics is answered 500, a body that panics ends its stream (HTTP/1.1: its
//! connection), and what the request held is given back.

mod common;

use std::convert::Infallible;
use std::future::Future;
use std::io::{Read, Write};
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::routing::get;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Buf, Frame};
use wakeful_http::{Limits, Running, observe, upgrade};

use common::frames::{Client, *};
use common::*;

struct Panics;

impl futures_lite::Stream for Panics {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        panic!("of a body, on purpose")
    }
}

async fn panics() -> &'static str {
    panic!("of a handler, on purpose")
}

#[test]
fn requests_that_panic_give_back_their_places() {
    let app = router()
        .route("/handler", get(panics))
        .route("/body", get(|| async { Body::from_stream(Panics) }));
    let limits = Limits::new().max_requests(1).max_connections_per_peer(1);
    let running = server().limits(limits).start(app).unwrap();
    for path in ["/handler", "/body"].repeat(3) {
        let answer = ask_and_close(&running, path);
        assert_eq!(answer.starts_with("HTTP/1.1 500 "), path == "/handler", "{answer}");
        until("it is closed", || running.counts().open() == 0);
    }
    assert_eq!(running.http_counts().in_flight(), 0);
    let mut client = Client::new(&running);
    for (number, path) in ["/handler", "/body"].repeat(3).into_iter().enumerate() {
        let stream = 1 + 2 * u32::try_from(number).unwrap();
        client.get(stream, path);
        if path == "/handler" {
            let answer = client.wait_for(HEADERS);
            assert_eq!((answer.stream, answer.status().as_str()), (stream, "500"));
        } else {
            let reset = client.wait_for(RST_STREAM);
            assert_eq!((reset.stream, reset.error()), (stream, CANCEL));
        }
    }
    assert_eq!(running.http_counts().in_flight(), 0);
}

fn ask_and_close(running: &Running, path: &str) -> String {
    let mut stream = raw(running);
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    read_all(stream)
}

/// What unwinding drops, and what a panic carries, may panic again.
struct PanicsInItsDrop;

impl Drop for PanicsInItsDrop {
    fn drop(&mut self) {
        panic!("of a drop, on purpose")
    }
}

/// A future that panics when it is polled, and again when it is dropped after that.
struct PanicsPolledAndDropped(PanicsInItsDrop);

impl Future for PanicsPolledAndDropped {
    type Output = Result<http::Response<String>, Infallible>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let _ = &self.0;
        panic!("of a future, on purpose")
    }
}

fn answers_what_panics_in_each_way() -> Running {
    let service = |request: http::Request<wakeful_http::RequestBody>| {
        let path = request.uri().path().to_owned();
        assert_ne!(path, "/call", "of a call, on purpose");
        if path == "/future" {
            let future = PanicsPolledAndDropped(PanicsInItsDrop);
            return Box::pin(future) as Pin<Box<dyn Future<Output = _>>>;
        }
        Box::pin(async move {
            if path == "/later" {
                wakeful::time::sleep(Duration::from_millis(1)).await;
                panic!("behind a wait, on purpose");
            }
            if path == "/payload" {
                std::panic::panic_any(PanicsInItsDrop);
            }
            let length = request.into_body().collect().await.map_or(0, |it| it.to_bytes().len());
            Ok(http::Response::new(format!("served {length}")))
        })
    };
    server().start_with(move || wakeful_http::service_fn(service)).unwrap()
}

#[test]
fn a_handler_that_panics_is_answered_500_and_its_connection_goes_on() {
    let running = answers_what_panics_in_each_way();
    let panics = || running.handles().iter().map(|it| it.metrics().panics).sum::<u64>();
    let before = panics();
    let mut stream = raw(&running);
    for path in ["/call", "/future", "/later", "/payload"] {
        // The second one comes while the first is served.
        for method in ["GET", "HEAD"] {
            let heads = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\n\r\nPOST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody"
            );
            stream.write_all(heads.as_bytes()).unwrap();
            let mut answers = String::new();
            while !answers.ends_with("served 4") {
                let mut piece = [0; 512];
                let count = stream.read(&mut piece).unwrap();
                assert_ne!(count, 0, "{path}: {answers}");
                answers.push_str(std::str::from_utf8(&piece[..count]).unwrap());
            }
            let (first, second) = answers.split_once("\r\n\r\n").unwrap();
            assert!(first.starts_with("HTTP/1.1 500 "), "{path}: {answers}");
            assert!(second.starts_with("HTTP/1.1 200 "), "{path}: {answers}");
            assert!(!answers.contains("purpose"), "{path}: {answers}");
        }
    }
    assert_eq!(running.http_counts().responses(5), 8);
    // The futures' drops, and those of the payloads, count for themselves.
    assert!(panics() - before >= 8, "{}", panics() - before);
    until("none is in flight", || running.http_counts().in_flight() == 0);
    assert_eq!(running.counts().accepted(), 1);
}

#[test]
fn a_handler_that_panics_with_http2_is_answered_500_and_the_other_streams_go_on() {
    let running = answers_what_panics_in_each_way();
    let mut client = Client::new(&running);
    client.send(HEADERS, END_HEADERS, 1, &head("POST", "/"));
    client.send(DATA, 0, 1, b"in two");
    for (stream, path) in [(3, "/call"), (5, "/future"), (7, "/later"), (9, "/payload")] {
        client.get(stream, path);
        let answer = client.wait_for(HEADERS);
        assert_eq!((answer.stream, answer.status().as_str()), (stream, "500"), "{path}");
    }
    client.send(DATA, END_STREAM, 1, b" pieces");
    let answer = client.wait_for(HEADERS);
    assert_eq!((answer.stream, answer.status().as_str()), (1, "200"));
    assert_eq!(client.wait_for(DATA).payload, b"served 13");
    until("none is in flight", || running.http_counts().in_flight() == 0);
}

/// The request's body goes with the handler.
#[test]
fn a_handler_that_panics_with_its_body_unread_is_answered_500_and_no_later_request_is_misread() {
    let running = answers_what_panics_in_each_way();
    for length in [10, 1 << 20] {
        let mut stream = raw(&running);
        let head = format!("POST /later HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // What is sent after an answer may meet a closed connection.
        let body = vec![b'G'; length];
        let next = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let _ = stream.write_all(&body).and_then(|()| stream.write_all(next));
        let answer = read_all(stream);
        assert!(answer.starts_with("HTTP/1.1 500 "), "{length}: {answer}");
        // It is answered, or its connection was closed before it.
        let rest = &answer[answer.find("\r\n\r\n").unwrap() + 4..];
        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 200 "), "{length}: {answer}");
    }
    until("none is in flight", || running.http_counts().in_flight() == 0);
}

/// It is called before there is a future that could contain its panic.
#[test]
fn a_factory_that_panics_closes_its_connection_and_the_next_one_is_served() {
    const PANICS: usize = 4;
    let calls = Arc::new(AtomicUsize::new(0));
    let running = server()
        .start_per_connection(move || {
            let calls = calls.clone();
            move |_| {
                let call = calls.fetch_add(1, Ordering::Relaxed);
                assert!(call >= PANICS, "of a factory, on purpose");
                wakeful_http::service_fn(async |_| {
                    Ok::<_, Infallible>(http::Response::new("served".to_owned()))
                })
            }
        })
        .unwrap();
    for number in 0..2 * PANICS {
        let mut stream = raw(&running);
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert_eq!(answer.ends_with("served"), number >= PANICS, "{number}: {answer}");
    }
    until("all are closed", || running.counts().open() == 0);
}

/// HTTP/2 calls the service, and makes the span, in the task of the whole connection.
#[test]
fn a_call_or_a_span_that_panics_costs_no_other_request_of_its_connection() {
    let (enter, entered) = async_channel::unbounded();
    let (open, opened) = async_channel::bounded::<()>(1);
    let span = |head: observe::Head<'_>| {
        assert!(head.uri.path() != "/span", "of a span, on purpose");
        tracing::Span::none()
    };
    let running = server()
        .observe(observe::Observe::new().span(span))
        .start_with(move || {
            let (enter, opened) = (enter.clone(), opened.clone());
            wakeful_http::service_fn(move |request: http::Request<wakeful_http::RequestBody>| {
                assert!(request.uri().path() != "/call", "of a call, on purpose");
                let (enter, opened) = (enter.clone(), opened.clone());
                async move {
                    enter.send(()).await.unwrap();
                    // It ends by being closed.
                    let _ = opened.recv().await;
                    Ok::<_, Infallible>(http::Response::new("served".to_owned()))
                }
            })
        })
        .unwrap();
    let mut client = Client::new(&running);
    client.get(1, "/");
    entered.recv_blocking().unwrap();
    for (stream, path) in [(3, "/call"), (5, "/span"), (7, "/call")] {
        client.get(stream, path);
        let answer = client.wait_for(HEADERS);
        assert_eq!((answer.stream, answer.status().as_str()), (stream, "500"), "{path}");
    }
    assert_eq!(running.http_counts().in_flight(), 1);
    open.close();
    let answer = client.wait_for(HEADERS);
    assert_eq!((answer.stream, answer.status().as_str()), (1, "200"));
    assert_eq!(client.wait_for(DATA).payload, b"served");
}

/// A response's data that panics as it is written.
struct BadData;

impl Buf for BadData {
    fn remaining(&self) -> usize {
        1
    }

    fn chunk(&self) -> &[u8] {
        panic!("of a body's data, on purpose")
    }

    fn advance(&mut self, _: usize) {}
}

/// Has one piece of data, or waits for ever.
struct Pieces(Option<BadData>);

impl hyper::body::Body for Pieces {
    type Data = BadData;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BadData>, Infallible>>> {
        self.0.take().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data)))))
    }
}

/// h2 writes with its lock held, which stays poisoned.
#[test]
fn a_panic_that_ends_an_http2_connection_ends_its_requests_and_not_the_process() {
    let limits = Limits::new().max_requests(5);
    let running = server()
        .limits(limits)
        .start_with(|| {
            wakeful_http::service_fn(
                |mut request: http::Request<wakeful_http::RequestBody>| async move {
                    match request.uri().path() {
                        "/writes" => return Ok(http::Response::new(Pieces(Some(BadData)))),
                        "/responds" => return Ok(http::Response::new(Pieces(None))),
                        "/reads" => drop(request.body_mut().frame().await),
                        _ => {}
                    }
                    // With its request's body.
                    std::future::pending::<Result<_, Infallible>>().await
                },
            )
        })
        .unwrap();
    for _ in 0..2 {
        let mut client = Client::new(&running);
        client.get(1, "/waits");
        for (stream, path) in [(3, "/reads"), (5, "/holds")] {
            let head = frame(HEADERS, END_HEADERS, stream, &head("POST", path));
            client.stream.write_all(&head).unwrap();
        }
        client.get(7, "/responds");
        assert_eq!(client.wait_for(HEADERS).stream, 7);
        until("all are in flight", || running.http_counts().in_flight() == 4);
        client.get(9, "/writes");
        until("it is closed", || running.counts().open() == 0);
        until("none is in flight", || running.http_counts().in_flight() == 0);
    }
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn a_panic_that_ends_an_http2_connection_ends_its_tunnels() {
    const INITIAL_WINDOW: u16 = 4;
    let (tell, told) = async_channel::unbounded();
    let running = server()
        .start_with(move || {
            let tell = tell.clone();
            wakeful_http::service_fn(
                move |mut request: http::Request<wakeful_http::RequestBody>| {
                    let path = request.uri().path().to_owned();
                    let is_bad = path == "/panics";
                    let (upgrading, tell) = (upgrade::on(&mut request), tell.clone());
                    let tunnel = async move {
                        let mut stream = upgrading.await.unwrap();
                        tell.send("it is open".to_owned()).await.unwrap();
                        let end = match path.as_str() {
                            "/reads" => stream.read(&mut [0]).await.map(drop),
                            _ => loop {
                                if let Err(error) = stream.write_all(&[7; 1000]).await {
                                    break Err(error);
                                }
                            },
                        };
                        drop(stream);
                        tell.send(format!("{path} {}", end.is_err())).await.unwrap();
                    };
                    if !is_bad {
                        wakeful::spawn(tunnel).detach();
                    }
                    async move {
                        Ok::<_, Infallible>(http::Response::new(Pieces(is_bad.then_some(BadData))))
                    }
                },
            )
        })
        .unwrap();
    // There is room for the bad data, and for no more.
    let mut client = Client::with_settings(&running, &[(INITIAL_WINDOW, 1)]);
    for (stream, path) in [(1, "/reads"), (3, "/writes")] {
        let fields = [(":method", "CONNECT"), (":protocol", "x"), (":scheme", "http")];
        let fields = fields.into_iter().chain([(":path", path), (":authority", "x")]);
        let head: Vec<u8> = fields.flat_map(|(name, value)| field(name, value)).collect();
        client.send(HEADERS, END_HEADERS, stream, &head);
        assert_eq!(client.wait_for(HEADERS).stream, stream);
        assert_eq!(told.recv_blocking().unwrap(), "it is open");
    }
    client.get(5, "/panics");
    until("both have ended", || told.len() == 2);
    let mut ends = [told.try_recv().unwrap(), told.try_recv().unwrap()];
    ends.sort();
    assert_eq!(ends, ["/reads true", "/writes true"]);
    until("it is closed", || running.counts().open() == 0);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

struct BadWaker(AtomicUsize);

impl Wake for BadWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("of a waker, on purpose")
    }
}

/// h2 wakes with its lock held.
#[test]
fn a_waker_that_panics_as_a_body_comes_costs_no_other_request_of_its_connection() {
    let waker = Arc::new(BadWaker(AtomicUsize::new(0)));
    let of_handlers = waker.clone();
    let reads = async move |mut body: Body| {
        let waker = of_handlers.clone().into();
        assert!(Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker)).is_pending());
        std::future::pending::<&str>().await
    };
    let running = server().start(router().route("/reads", axum::routing::post(reads))).unwrap();
    let mut client = Client::new(&running);
    let head = frame(HEADERS, END_HEADERS, 1, &head("POST", "/reads"));
    client.stream.write_all(&head).unwrap();
    until("it is in flight", || running.http_counts().in_flight() == 1);
    client.get(3, "/slow");
    client.stream.write_all(&frame(DATA, 0, 1, b"comes")).unwrap();
    let answer = client.wait_for(HEADERS);
    assert_eq!((answer.stream, answer.status().as_str()), (3, "200"));
    assert_eq!(waker.0.load(Ordering::Relaxed), 1);
    drop(client);
    until("none is in flight", || running.http_counts().in_flight() == 0);
}

/// As above: the poll takes h2's lock again. So does the drop of a body that only its waker keeps.
#[test]
fn a_waker_that_polls_at_once_as_a_body_comes_does_not_block_its_loop() {
    let read = async |body: Body| {
        let (tell, told) = async_channel::bounded(1);
        poll_at_once(async move {
            let length = body.collect().await.map_or(0, |body| body.to_bytes().len());
            tell.try_send(length).unwrap();
        });
        told.recv().await.unwrap().to_string()
    };
    let given_up = async |body: Body| {
        poll_at_once(async move { drop(body.collect().await) });
        std::future::pending::<&str>().await
    };
    let app = router()
        .route("/read", axum::routing::post(read))
        .route("/given-up", axum::routing::post(given_up));
    // A blocked loop could not be joined, and the test would not end.
    let running = ManuallyDrop::new(server().start(app).unwrap());
    let mut client = Client::new(&running);
    for (stream, path) in [(1, "/given-up"), (3, "/read")] {
        client.send(HEADERS, END_HEADERS, stream, &head("POST", path));
    }
    until("they are in flight", || running.http_counts().in_flight() == 2);
    client.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes());
    client.send(DATA, 0, 3, b"in two");
    client.send(DATA, END_STREAM, 3, b" pieces");
    let answer = client.wait_for(HEADERS);
    assert_eq!((answer.stream, answer.status().as_str()), (3, "200"));
    assert_eq!(client.wait_for(DATA).payload, b"13");
    drop(client);
    until("none is in flight", || running.http_counts().in_flight() == 0);
    drop(ManuallyDrop::into_inner(running));
}

/// The waker of an executor whose wakers own its tasks.
struct OwnsBody(#[allow(dead_code, reason = "it is dropped")] Mutex<Body>);

impl Wake for OwnsBody {
    fn wake(self: Arc<Self>) {}
}

/// h2 drops a waker with its lock held, when another one replaces it and when its body goes. With
/// the waker goes a body that takes the lock again.
#[test]
fn a_waker_that_owns_a_body_blocks_no_connection_where_no_loop_runs() {
    let (give, given) = mpsc::channel();
    let gives = move |body: Body| {
        give.send(body).unwrap();
        std::future::pending::<&str>()
    };
    // A blocked loop could not be joined, and the test would not end.
    let app = router().route("/gives", axum::routing::post(gives));
    let running = ManuallyDrop::new(server().start(app).unwrap());
    let mut client = Client::new(&running);
    for stream in [1, 3, 5, 7] {
        client.send(HEADERS, END_HEADERS, stream, &head("POST", "/gives"));
    }
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let body = || given.recv_timeout(GUARD).unwrap();
        let mut noop = Context::from_waker(Waker::noop());
        let polled_by_owner = || {
            let waker = Arc::new(OwnsBody(Mutex::new(body()))).into();
            let mut one = body();
            assert!(Pin::new(&mut one).poll_frame(&mut Context::from_waker(&waker)).is_pending());
            one
        };
        let mut replaced = polled_by_owner();
        assert!(Pin::new(&mut replaced).poll_frame(&mut noop).is_pending());
        drop(polled_by_owner());
        done.send(replaced).unwrap();
    });
    let _replaced = is_done.recv_timeout(GUARD).expect("it waits for its own lock");
    client.get(9, "/slow");
    let answer = client.wait_for(HEADERS);
    assert_eq!((answer.stream, answer.status().as_str()), (9, "200"));
    drop(client);
    until("none is in flight", || running.http_counts().in_flight() == 0);
    drop(ManuallyDrop::into_inner(running));
}

/// As one whose lock its panic has poisoned.
struct PanicsTwice;

impl hyper::body::Body for PanicsTwice {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("of a body, on purpose")
    }
}

impl Drop for PanicsTwice {
    fn drop(&mut self) {
        panic!("of a body's drop, on purpose")
    }
}

#[test]
fn what_panics_and_then_in_its_drop_ends_a_connection_and_not_the_process() {
    let running = server()
        .start_per_connection(|| {
            |_| {
                let of_service = PanicsTwice;
                wakeful_http::service_fn(move |request: http::Request<_>| {
                    let _ = &of_service;
                    assert_ne!(request.uri(), "/service", "of a service, on purpose");
                    async { Ok::<_, Infallible>(http::Response::new(Body::new(PanicsTwice))) }
                })
            }
        })
        .unwrap();
    for path in ["/body", "/service"].repeat(2) {
        let is_answered = path == "/service";
        let answer = ask_and_close(&running, path);
        assert_eq!(answer.starts_with("HTTP/1.1 500 "), is_answered, "{path}: {answer}");
        until("it is closed", || running.counts().open() == 0);
        let mut client = Client::new(&running);
        client.get(1, path);
        let answer = client.wait_for(if is_answered { HEADERS } else { RST_STREAM });
        assert_eq!(answer.stream, 1, "{path}");
    }
    until("none is in flight", || running.http_counts().in_flight() == 0);
}

/// Each is dropped at the end of its loop, or of the server.
#[test]
fn a_factory_and_what_makes_it_may_both_panic_in_their_drops() {
    let (of_maker, of_factory, of_observer) = (PanicsTwice, PanicsTwice, PanicsTwice);
    let observe = wakeful_http::observe::Observe::new().span(move |_| {
        let _ = &of_observer;
        tracing::Span::none()
    });
    let of_factory = Mutex::new(Some(of_factory));
    let running = server()
        .observe(observe)
        .start_per_connection(move || {
            let _ = &of_maker;
            let of_factory = of_factory.lock().unwrap().take();
            move |_| {
                let _ = &of_factory;
                wakeful_http::service_fn(|_: http::Request<_>| async {
                    Ok::<_, Infallible>(http::Response::new(Body::empty()))
                })
            }
        })
        .unwrap();
    let answer = ask_and_close(&running, "/");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    running.drain(wakeful_http::DrainPlan::new()).unwrap();
}

struct SaysHello {
    has_said: bool,
    _panics: PanicsInItsDrop,
}

impl hyper::body::Body for SaysHello {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let is_first = !std::mem::replace(&mut self.has_said, true);
        Poll::Ready(is_first.then(|| Ok(Frame::data(Bytes::from_static(b"hello")))))
    }
}

struct AnswersHello(PanicsInItsDrop);

impl Future for AnswersHello {
    type Output = Result<http::Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let _ = &self.0;
        Poll::Ready(Ok(http::Response::new(Body::from("hello"))))
    }
}

#[test]
fn a_panic_in_the_drop_of_what_has_answered_costs_neither_the_answer_nor_the_connection() {
    let service = |request: http::Request<wakeful_http::RequestBody>| {
        if request.uri().path() == "/future" {
            let future = AnswersHello(PanicsInItsDrop);
            return Box::pin(future) as Pin<Box<dyn Future<Output = _>>>;
        }
        let body = Body::new(SaysHello { has_said: false, _panics: PanicsInItsDrop });
        let mut response = http::Response::new(body);
        if request.uri().path() == "/204" {
            *response.status_mut() = http::StatusCode::NO_CONTENT;
        }
        Box::pin(async { Ok(response) })
    };
    let running = server().start_with(move || wakeful_http::service_fn(service)).unwrap();
    let (mut stream, mut client) = (raw(&running), Client::new(&running));
    for (number, path) in ["/future", "/body"].repeat(2).into_iter().enumerate() {
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        while !answer.ends_with("hello") && !answer.ends_with("hello\r\n0\r\n\r\n") {
            let mut piece = [0; 512];
            let count = stream.read(&mut piece).unwrap();
            assert_ne!(count, 0, "{path}: {answer}");
            answer.push_str(std::str::from_utf8(&piece[..count]).unwrap());
        }
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        client.get(1 + 2 * u32::try_from(number).unwrap(), path);
        assert_eq!(client.wait_for(HEADERS).status(), "200", "{path}");
        assert_eq!(client.wait_for(DATA).payload, b"hello", "{path}");
    }
    // The body is not asked for anything.
    for (stream, method, path, status) in [(9, "HEAD", "/body", "200"), (11, "GET", "/204", "204")]
    {
        client.send(HEADERS, END_STREAM | END_HEADERS, stream, &frames::head(method, path));
        let mut frames = std::iter::repeat_with(|| client.wait_for_any());
        let answer = frames.find(|frame| matches!(frame.kind, HEADERS | RST_STREAM)).unwrap();
        assert_eq!((answer.kind, answer.stream), (HEADERS, stream), "{method} {path}");
        assert_eq!(answer.status(), status, "{method} {path}");
    }
    until("none is in flight", || running.http_counts().in_flight() == 0);
    assert_eq!(running.counts().accepted(), 2);
}

/// What hyper drops together would panic twice.
#[test]
fn data_that_panics_in_its_drop_costs_neither_its_connection_nor_the_process() {
    struct Owner(Vec<u8>);

    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            panic!("in the drop of a body's data, on purpose")
        }
    }

    let body = async |request: axum::extract::Request| {
        let (pieces, length) = match request.uri().query() {
            Some("large") => (1000, 1 << 16),
            Some(_) => (3, 300),
            None => (3, 2),
        };
        // Made as they are asked for: a body that had two of them would panic twice by itself.
        let piece = move |number| Bytes::from_owner(Owner(vec![b'a' + number; length]));
        let pieces = (0..pieces).map(move |number| Ok::<_, Infallible>(piece((number % 26) as u8)));
        Body::from_stream(futures_util::stream::iter(pieces))
    };
    let running = server().start(axum::Router::new().route("/", get(body))).unwrap();
    // Given up with all of it in hyper's queue.
    let mut stream = raw(&running);
    stream.write_all(b"GET /?large HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    drop(stream);
    until("it is closed", || running.counts().open() == 0);
    let mut stream = raw(&running);
    for _ in 0..2 {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        while !answer.ends_with("\r\n0\r\n\r\n") {
            let mut piece = [0; 512];
            let count = stream.read(&mut piece).unwrap();
            assert_ne!(count, 0, "{answer}");
            answer.push_str(std::str::from_utf8(&piece[..count]).unwrap());
        }
        assert!(answer.contains("aa\r\n") && answer.contains("cc\r\n"), "{answer}");
    }
    let mut client = Client::new(&running);
    // Small pieces are joined. h2 has the others, and drops them.
    for (stream, path, length) in [(1, "/", 2), (3, "/", 2), (5, "/?pieces", 300)] {
        client.get(stream, path);
        let (mut data, mut has_ended) = (Vec::new(), false);
        while !has_ended {
            let frame = client.wait_for(DATA);
            assert_eq!(frame.stream, stream);
            data.extend(frame.payload);
            has_ended = frame.flags & END_STREAM != 0;
        }
        assert_eq!(data, [b'a', b'b', b'c'].map(|byte| vec![byte; length]).concat());
    }
}
