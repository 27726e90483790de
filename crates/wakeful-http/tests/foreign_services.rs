//! Services that fail, panic or are never ready, and what panics in more than one place: none of it
//! costs more than its own connection (HTTP/2: its stream), and the log says what failed.

mod common;

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body, Frame, SizeHint};
use hyper::ext::ReasonPhrase;
use tower::Service;
use wakeful_http::access_log::{AccessLog, Destination, Format, Query};
use wakeful_http::observe::Observe;
use wakeful_http::{BoxError, Limits, RequestBody, Running, service_fn};

use common::frames::{Client, END_STREAM, HEADERS, RST_STREAM};
use common::*;

fn ask(running: &Running, path: &str) -> String {
    let mut stream = raw(running);
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    read_all(stream)
}

#[derive(Clone)]
struct PanicsInItsDrop;

impl Drop for PanicsInItsDrop {
    fn drop(&mut self) {
        panic!("of a drop, on purpose")
    }
}

/// A tower service that is ready in one way.
struct Readies {
    way: &'static str,
    panics: Option<PanicsInItsDrop>,
}

impl Clone for Readies {
    fn clone(&self) -> Self {
        let panics = (self.way == "panics twice").then(|| PanicsInItsDrop);
        Self { way: self.way, panics }
    }
}

impl Service<Request<RequestBody>> for Readies {
    type Response = Response<String>;
    type Error = BoxError;
    type Future = std::future::Ready<Result<Response<String>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let _ = &self.panics;
        match self.way {
            "never" => Poll::Pending,
            "fails" => Poll::Ready(Err("not ready, on purpose".into())),
            "is ready" => Poll::Ready(Ok(())),
            _ => panic!("of a service, on purpose"),
        }
    }

    fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
        std::future::ready(Err("called, on purpose".into()))
    }
}

fn readies(way: &'static str) -> Running {
    let limits = Limits::new().request_timeout(Duration::from_millis(200));
    server().limits(limits).start_each(move || Readies { way, panics: None }).unwrap()
}

fn ends(running: Running) {
    until("none is in flight", || running.http_counts().in_flight() == 0);
    until("it is closed", || running.counts().open() == 0);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn a_service_that_is_never_ready_or_panics_as_it_is_asked_is_answered_for() {
    for (way, status) in [("never", "503"), ("panics", "500"), ("panics twice", "500")] {
        let running = readies(way);
        let answer = ask(&running, "/");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{way}: {answer}");
        let mut client = Client::new(&running);
        client.get(1, "/");
        assert_eq!(client.wait_for(HEADERS).status(), status, "{way}");
        client.get(3, "/");
        assert_eq!(client.wait_for(HEADERS).stream, 3, "{way}");
        drop(client);
        ends(running);
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The program's log, at the level that production has.
static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let of_subscriber = log.clone();
    tracing_subscriber::fmt().with_writer(move || of_subscriber.clone()).init();
    log
});

fn logged(what: &str) -> usize {
    String::from_utf8_lossy(&LOG.0.lock().unwrap()).matches(what).count()
}

#[test]
fn a_service_that_cannot_be_made_is_logged_once_a_second_with_a_count() {
    LazyLock::force(&LOG);
    let make = tower::service_fn(async |_: SocketAddr| {
        Err::<Readies, BoxError>("not made, on purpose".into())
    });
    let (began, running) = (Instant::now(), server().start_make_service(make).unwrap());
    // Another test may have one logged in the same second.
    until("the log says it", || {
        assert_eq!(ask(&running, "/"), "");
        logged("not made, on purpose") > 0
    });
    (0..50).for_each(|_| assert_eq!(ask(&running, "/"), ""));
    ends(running);
    let times = logged("not made, on purpose") as u64;
    let seconds = began.elapsed().as_secs();
    assert!((1..=seconds + 1).contains(&times), "{times} in {seconds} s");
}

#[test]
fn a_service_that_fails_is_named_in_the_log_and_ends_no_other_request_of_http2() {
    LazyLock::force(&LOG);
    for (way, said) in [("fails", "not ready, on purpose"), ("is ready", "called, on purpose")] {
        let running = readies(way);
        let mut client = Client::new(&running);
        until("the log says it", || {
            assert_eq!(ask(&running, "/"), "");
            logged(said) > 0
        });
        for stream in [1, 3] {
            client.get(stream, "/");
            assert_eq!(client.wait_for(RST_STREAM).stream, stream);
        }
        drop(client);
        ends(running);
    }
}

/// Panics where it is asked for its size.
struct BadData(PanicsInItsDrop);

impl Buf for BadData {
    fn remaining(&self) -> usize {
        let _ = &self.0;
        panic!("of data, on purpose")
    }

    fn chunk(&self) -> &[u8] {
        &[]
    }

    fn advance(&mut self, _: usize) {}
}

/// Panics in one of its methods, and in its drop. Otherwise its data does.
struct BadBody {
    way: String,
    _panics: PanicsInItsDrop,
}

impl Body for BadBody {
    type Data = BadData;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BadData>, Infallible>>> {
        assert_ne!(self.way, "/poll", "on purpose");
        Poll::Ready(Some(Ok(Frame::data(BadData(PanicsInItsDrop)))))
    }

    fn is_end_stream(&self) -> bool {
        assert_ne!(self.way, "/end", "on purpose");
        false
    }

    fn size_hint(&self) -> SizeHint {
        assert_ne!(self.way, "/size", "on purpose");
        SizeHint::default()
    }
}

/// hyper has a response's head, or a frame, in its hands where it asks the body: two panics would
/// be the end of the process.
#[test]
fn a_body_that_panics_beside_what_panics_in_its_drop_ends_its_connection_and_not_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let log = Destination::File(dir.path().join("log"));
    let log = AccessLog::new(Format::Json, log, Query::Omit).unwrap();
    for observe in [Observe::new(), Observe::new().access_log(log)] {
        let service = |request: Request<RequestBody>| async move {
            let way = request.uri().path().to_owned();
            let mut response = Response::new(BadBody { way, _panics: PanicsInItsDrop });
            if request.uri().query().is_some() {
                response.extensions_mut().insert(PanicsInItsDrop);
            }
            Ok::<_, Infallible>(response)
        };
        let running = server().observe(observe).start_with(move || service_fn(service)).unwrap();
        for path in ["/poll", "/end", "/size", "/data"] {
            for path in [path.to_owned(), format!("{path}?extension")] {
                let _cut = ask(&running, &path);
                let mut client = Client::new(&running);
                client.get(1, &path);
                assert_eq!(client.wait_for(RST_STREAM).stream, 1, "{path}");
            }
        }
        ends(running);
    }
}

/// hyper would drop them as it writes the head.
#[test]
fn extensions_of_a_response_that_panic_in_their_drop_cost_neither_it_nor_the_connection() {
    let service = |_| async {
        let mut response = Response::new("fine".to_owned());
        response.extensions_mut().insert(PanicsInItsDrop);
        response.extensions_mut().insert(ReasonPhrase::from_static(b"Fine"));
        Ok::<_, Infallible>(response)
    };
    let running = server().start_with(move || service_fn(service)).unwrap();
    let mut stream = raw(&running);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let answers = read_all(stream);
    // The reason stays, which hyper takes from there.
    assert_eq!(answers.matches("HTTP/1.1 200 Fine\r\n").count(), 2, "{answers}");
    assert_eq!(answers.matches("\r\n\r\nfine").count(), 2, "{answers}");
    let mut client = Client::new(&running);
    for stream in [1, 3] {
        client.get(stream, "/");
        let head = client.wait_for(HEADERS);
        assert_eq!((head.stream, &*head.status()), (stream, "200"));
    }
    drop(client);
    ends(running);
}

/// Of a header value's bytes.
struct PanickingOwner(String, PanicsInItsDrop);

impl AsRef<[u8]> for PanickingOwner {
    fn as_ref(&self) -> &[u8] {
        let _ = &self.1;
        self.0.as_bytes()
    }
}

fn panicking_value(text: String) -> HeaderValue {
    let bytes = Bytes::from_owner(PanickingOwner(text, PanicsInItsDrop));
    HeaderValue::from_maybe_shared(bytes).unwrap()
}

/// h2 keeps values of several messages together, and drops an old one with a new one in its hands.
#[test]
fn header_values_that_panic_in_their_drop_cost_neither_an_http2_connection_nor_the_process() {
    let service = |request: Request<RequestBody>| async move {
        let number = request.uri().path().to_owned();
        let mut trailers = HeaderMap::new();
        trailers.insert("trailer", panicking_value(number.clone()));
        let frames = [Ok::<_, Infallible>(Frame::<Bytes>::trailers(trailers))];
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let mut response = Response::new(body);
        for name in ["first", "second"] {
            response.headers_mut().insert(name, panicking_value(number.clone()));
        }
        response.headers_mut().insert("empty", panicking_value(String::new()));
        Ok::<_, Infallible>(response)
    };
    let running = server().start_with(move || service_fn(service)).unwrap();
    let mut client = Client::new(&running);
    // More than the table of an encoder holds.
    for stream in (1..400).step_by(2) {
        client.get(stream, &format!("/{stream}"));
        let head = client.wait_for(HEADERS);
        assert_eq!((head.stream, &*head.status()), (stream, "200"));
        let trailers = client.wait_for(HEADERS);
        assert_eq!((trailers.stream, trailers.flags & END_STREAM), (stream, END_STREAM));
    }
    drop(client);
    ends(running);
}

/// Panics when it is shown, asked for its source, or converted. The first two panic in their drop,
/// too.
enum BadError {
    Shown(PanicsInItsDrop),
    Asked(PanicsInItsDrop),
    Converted,
}

impl std::fmt::Debug for BadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for BadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        assert!(!matches!(self, Self::Shown(_)), "of an error's text, on purpose");
        f.write_str("an error")
    }
}

impl std::error::Error for BadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        assert!(!matches!(self, Self::Asked(_)), "of an error's source, on purpose");
        None
    }
}

struct Converted(BadError);

impl From<Converted> for BoxError {
    fn from(Converted(error): Converted) -> Self {
        assert!(!matches!(error, BadError::Converted), "of a conversion, on purpose");
        Box::new(error)
    }
}

/// A body that fails.
struct Fails(Option<BadError>);

impl Body for Fails {
    type Data = bytes::Bytes;
    type Error = Converted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, Converted>>> {
        Poll::Ready(self.0.take().map(|error| Err(Converted(error))))
    }
}

/// With HTTP/2, hyper asks an error for its sources, and has it in its hands then.
#[test]
fn an_error_that_panics_and_then_in_its_drop_ends_its_connection_and_not_the_process() {
    let service = |request: Request<RequestBody>| async move {
        let error = match request.uri().path() {
            "/shown" => BadError::Shown(PanicsInItsDrop),
            "/asked" => BadError::Asked(PanicsInItsDrop),
            "/converted" => BadError::Converted,
            _ => return Ok(Response::new(Fails(None))),
        };
        match request.uri().query() {
            Some(_) => Ok(Response::new(Fails(Some(error)))),
            None => Err(Converted(error)),
        }
    };
    let running = server().start_with(move || service_fn(service)).unwrap();
    let mut client = Client::new(&running);
    let mut streams = (1..).step_by(2);
    for path in ["/shown", "/asked", "/converted"] {
        for path in [path.to_owned(), format!("{path}?in-the-body")] {
            let _cut = ask(&running, &path);
            let (bad, good) = (streams.next().unwrap(), streams.next().unwrap());
            client.get(bad, &path);
            assert_eq!(client.wait_for(RST_STREAM).stream, bad, "{path}");
            client.get(good, "/");
            let head = client.wait_for(HEADERS);
            assert_eq!((head.stream, &*head.status()), (good, "200"), "{path}");
        }
    }
    drop(client);
    ends(running);
}

/// The server answers in its place, and drops it.
#[test]
fn an_answer_that_is_replaced_by_a_refusal_may_panic_in_its_drop() {
    let service = |request: Request<RequestBody>| async move {
        let _too_large = request.into_body().collect().await;
        let mut response = Response::new("fine".to_owned());
        response.extensions_mut().insert(PanicsInItsDrop);
        Ok::<_, Infallible>(response)
    };
    let limits = Limits::new().max_body(10);
    let running = server().limits(limits).start_with(move || service_fn(service)).unwrap();
    let mut stream = raw(&running);
    stream.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    stream.write_all(b"14\r\n01234567890123456789\r\n0\r\n\r\n").unwrap();
    let answer = read_all(stream);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    ends(running);
}

#[derive(Clone)]
struct Factory {
    _panics: Option<PanicsInItsDrop>,
}

impl Service<SocketAddr> for Factory {
    type Response = axum::Router;
    type Error = Infallible;
    type Future = Making;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self._panics = Some(PanicsInItsDrop);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: SocketAddr) -> Making {
        Making(PanicsInItsDrop)
    }
}

struct Making(PanicsInItsDrop);

impl Future for Making {
    type Output = Result<axum::Router, Infallible>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let _ = &self.0;
        panic!("of what makes a service, on purpose")
    }
}

#[test]
fn a_maker_of_services_that_panics_as_do_its_drops_costs_a_connection_and_not_the_process() {
    let running = server().start_make_service(Factory { _panics: None }).unwrap();
    for _ in 0..3 {
        assert_eq!(ask(&running, "/"), "");
    }
    ends(running);
}
