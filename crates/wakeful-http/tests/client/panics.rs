//! Bodies of requests that panic: they fail their request, and the pool keeps its room. Wakers that
//! panic: who shares a connection, or waits for one, loses nothing.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::StreamExt;
use futures_util::stream::LocalBoxStream;
use http::{HeaderValue, Request};
use http_body_util::StreamBody;
use hyper::body::{Body, Buf, Bytes, Frame, SizeHint};
use wakeful::time::timeout;
use wakeful_http::client::{Client, ClientError, HttpVersion};
use wakeful_http::{BoxError, Http2Limits, Limits};

use super::common::{GUARD, Gate, addr, poll_at_once, router, server};
use super::{BodyExt, get, host, http2, on_a_loop, text, until};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Panics {
    Never,
    InPoll,
    InDrop,
    /// As one whose lock its panic has poisoned.
    InPollAndDrop,
    InSizeHint,
}

struct RequestBody(Panics);

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let panics = matches!(self.0, Panics::InPoll | Panics::InPollAndDrop);
        assert!(!panics, "in a body's poll, on purpose");
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        assert!(self.0 != Panics::InSizeHint, "in a body's size hint, on purpose");
        SizeHint::default()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let panics = matches!(self.0, Panics::InDrop | Panics::InPollAndDrop);
        assert!(!panics, "in a body's drop, on purpose");
    }
}

#[test]
fn bodies_of_requests_that_panic_leave_the_pool_its_room() {
    const CONNECTIONS: usize = 2;
    let running = server().start(router()).unwrap();
    let uri = format!("http://{}/echo", addr(&running));
    on_a_loop(async {
        for version in [HttpVersion::Http1, HttpVersion::Http2] {
            for panics in
                [Panics::InPoll, Panics::InDrop, Panics::InPollAndDrop, Panics::InSizeHint]
            {
                let client = Client::builder()
                    .version(version)
                    .max_connections(CONNECTIONS)
                    .build::<RequestBody>();
                let post = |panics| Request::post(&uri).body(RequestBody(panics)).unwrap();
                for _ in 0..=CONNECTIONS {
                    let (client, request) = (client.clone(), post(panics));
                    // The panic may come out of `send`, too.
                    let sent = wakeful::spawn(async move { client.send(request).await.map(drop) });
                    let _ = sent.await;
                }
                let response = client.send(post(Panics::Never)).await.unwrap();
                assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
            }
        }
    });
}

#[derive(Default)]
struct BadWaker(AtomicUsize);

impl BadWaker {
    fn new() -> (Arc<Self>, Waker) {
        let this = Arc::<Self>::default();
        (this.clone(), this.into())
    }

    fn panics(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for BadWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("in a waker, on purpose")
    }
}

#[test]
fn a_waker_that_panics_as_a_response_comes_costs_no_other_request_of_its_connection() {
    let running = server().start(router()).unwrap();
    let uri = format!("http://{}", addr(&running));
    on_a_loop(async {
        let client = Client::builder().version(HttpVersion::Http2).max_connections(1).build();
        let (piece, pieces) = async_channel::unbounded::<Bytes>();
        let body = |pieces: async_channel::Receiver<Bytes>| {
            StreamBody::new(pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece))).boxed())
        };
        let request = Request::post(format!("{uri}/echo")).body(body(pieces)).unwrap();
        let mut response = client.send(request).await.unwrap().into_body();
        let (bad, waker) = BadWaker::new();
        let mut cx = Context::from_waker(&waker);
        assert!(Pin::new(&mut response).poll_frame(&mut cx).is_pending());
        let slow = Request::get(format!("{uri}/slow")).body(body(async_channel::bounded(1).1));
        let slow = client.send(slow.unwrap());
        piece.send(Bytes::from("comes")).await.unwrap();
        let slow = slow.await.unwrap().into_body().collect().await.unwrap();
        assert_eq!((slow.to_bytes(), bad.panics()), (Bytes::from("slow"), 1));
        assert_eq!(response.frame().await.unwrap().unwrap().into_data().unwrap(), "comes");
        assert_eq!(client.counts().opened(), 1);
    });
}

#[test]
fn a_waker_that_panics_as_a_head_comes_costs_no_other_request_of_its_connection() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    on_a_loop(async {
        let (client, host) = http2(Client::builder().max_connections(1), addr(&running));
        // From now on the server's settings are known.
        assert_eq!(text(host.send(get("/n/1")).await).await, "1");
        let (bad, waker) = BadWaker::new();
        let mut first = pin!(host.send(get("/gated")));
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let second = wakeful::spawn({
            let host = host.clone();
            async move { text(host.send(get("/gated")).await).await }
        });
        gate.one_entered().await;
        gate.one_entered().await;
        gate.open();
        assert_eq!(second.await.unwrap(), "released");
        // Its head may come later.
        until(|| bad.panics() > 0).await;
        assert_eq!(text(first.await).await, "released");
        assert_eq!((bad.panics(), client.counts().opened()), (1, 1));
    });
}

#[test]
fn a_waker_that_panics_in_the_queue_costs_neither_who_makes_room_nor_who_waits_behind() {
    let (gate, app) = Gate::on(router());
    let http2_limits = Http2Limits::new().max_streams(1);
    let limits = Limits::new().http2(http2_limits);
    let running = server().limits(limits).start(app).unwrap();
    on_a_loop(async {
        let (client, host) = http2(Client::builder().max_connections(1), addr(&running));
        let first = wakeful::spawn({
            let host = host.clone();
            async move { text(host.send(get("/gated")).await).await }
        });
        gate.one_entered().await;
        let (bad, waker) = BadWaker::new();
        let mut waits = pin!(host.send(get("/n/1")));
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let behind = wakeful::spawn({
            let host = host.clone();
            async move { text(host.send(get("/n/2")).await).await }
        });
        while client.counts().waited() < 2 {
            wakeful::task::yield_now().await;
        }
        gate.open();
        assert_eq!(first.await.unwrap(), "released");
        assert_eq!(bad.panics(), 1);
        assert_eq!(text(waits.await).await, "1");
        assert_eq!(behind.await.unwrap(), "2");
        assert_eq!(client.counts().opened(), 1);
    });
}

/// The pool's queue wakes with its lock held, and h2 with its connection's.
#[test]
fn requests_whose_wakers_poll_at_once_are_answered() {
    let running = server().start(router()).unwrap();
    let addr = addr(&running);
    let (tell, told) = mpsc::channel();
    // A blocked loop could not be left, and the test would not end.
    std::thread::spawn(move || {
        on_a_loop(async {
            for version in [HttpVersion::Http1, HttpVersion::Http2] {
                let (_client, host) = host(Client::builder().max_connections(1), addr, version);
                let answered = Rc::new(Cell::new(0));
                for number in 0..20 {
                    let (host, answered) = (host.clone(), answered.clone());
                    poll_at_once(async move {
                        let path = if number % 2 == 0 { "/slow" } else { "/" };
                        text(host.send(get(path)).await).await;
                        answered.set(answered.get() + 1);
                    });
                }
                until(|| answered.get() == 20).await;
            }
            tell.send(()).unwrap();
        });
    });
    told.recv_timeout(GUARD).expect("they are answered");
}

#[test]
fn a_body_that_panics_costs_no_other_request_of_its_connection() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    let uri = format!("http://{}", addr(&running));
    on_a_loop(async {
        let client =
            Client::builder().version(HttpVersion::Http2).max_connections(1).build::<RequestBody>();
        let with = |method: &str, path: &str, panics| {
            let request = Request::builder().method(method).uri(format!("{uri}{path}"));
            request.body(RequestBody(panics)).unwrap()
        };
        let other = wakeful::spawn({
            let (client, request) = (client.clone(), with("GET", "/gated", Panics::Never));
            async move { client.send(request).await.unwrap().into_body().collect().await.unwrap() }
        });
        gate.one_entered().await;
        for panics in [Panics::InPoll, Panics::InDrop, Panics::InPollAndDrop, Panics::InSizeHint] {
            let sent = client.send(with("POST", "/echo", panics)).await;
            assert_eq!(sent.is_ok(), panics == Panics::InDrop);
        }
        gate.open();
        assert_eq!(other.await.unwrap().to_bytes(), "released");
        assert_eq!(client.counts().opened(), 1);
    });
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ErrorPanics {
    WhenAskedAndInDrop,
    InDrop,
    WhenConverted,
}

/// Of a request's body.
#[derive(Debug)]
struct BadError(ErrorPanics);

impl std::fmt::Display for BadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an error")
    }
}

impl std::error::Error for BadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let panics = self.0 == ErrorPanics::WhenAskedAndInDrop;
        assert!(!panics, "of an error's source, on purpose");
        None
    }
}

impl Drop for BadError {
    fn drop(&mut self) {
        assert!(self.0 == ErrorPanics::WhenConverted, "in the drop of an error, on purpose");
    }
}

struct Converted(BadError);

impl From<Converted> for BoxError {
    fn from(Converted(error): Converted) -> Self {
        let panics = error.0 == ErrorPanics::WhenConverted;
        assert!(!panics, "of a conversion, on purpose");
        Box::new(error)
    }
}

type Pieces<D, E> = LocalBoxStream<'static, Result<Frame<D>, E>>;

fn of_one_http2_connection<D, E>() -> Client<StreamBody<Pieces<D, E>>>
where
    D: Buf + Send + 'static,
    E: Into<BoxError> + 'static,
{
    Client::builder().version(HttpVersion::Http2).max_connections(1).build()
}

fn with_pieces<D, E>(
    method: &str,
    uri: String,
    pieces: Pieces<D, E>,
) -> Request<StreamBody<Pieces<D, E>>> {
    Request::builder().method(method).uri(uri).body(StreamBody::new(pieces)).unwrap()
}

#[test]
fn an_error_of_a_body_that_panics_costs_no_other_request_of_its_connection() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    let uri = format!("http://{}", addr(&running));
    on_a_loop(async {
        let client = of_one_http2_connection::<Bytes, Converted>();
        let with =
            |method: &str, path: &str, pieces| with_pieces(method, format!("{uri}{path}"), pieces);
        let other = wakeful::spawn({
            let none = futures_util::stream::empty().boxed_local();
            let (client, request) = (client.clone(), with("GET", "/gated", none));
            async move { client.send(request).await.unwrap().into_body().collect().await.unwrap() }
        });
        gate.one_entered().await;
        let ways =
            [ErrorPanics::WhenAskedAndInDrop, ErrorPanics::InDrop, ErrorPanics::WhenConverted];
        for panics in ways {
            // At once, and from the task that sends the rest.
            for is_late in [false, true] {
                let error = async move {
                    if is_late {
                        wakeful::task::yield_now().await;
                    }
                    Err(Converted(BadError(panics)))
                };
                let pieces = futures_util::stream::once(error).boxed_local();
                let sent = client.send(with("POST", "/echo", pieces)).await;
                if let Ok(response) = sent {
                    response.into_body().collect().await.unwrap_err();
                }
            }
        }
        gate.open();
        assert_eq!(other.await.unwrap().to_bytes(), "released");
        assert_eq!(client.counts().opened(), 1);
    });
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum DataPanics {
    Never,
    InRemaining,
    InChunk,
    InDrop,
}

/// Data of a request's body.
struct Data(Bytes, DataPanics);

impl Buf for Data {
    fn remaining(&self) -> usize {
        assert!(self.1 != DataPanics::InRemaining, "in the length of a body's data, on purpose");
        self.0.remaining()
    }

    fn chunk(&self) -> &[u8] {
        assert!(self.1 != DataPanics::InChunk, "in a body's data, on purpose");
        self.0.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        assert!(self.1 != DataPanics::InDrop, "in the drop of a body's data, on purpose");
    }
}

#[test]
fn a_panic_that_ends_an_http2_connection_ends_its_requests_at_once() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    let uri = format!("http://{}", addr(&running));
    on_a_loop(async {
        let client = of_one_http2_connection::<Data, Infallible>();
        let with =
            |method: &str, path: &str, pieces| with_pieces(method, format!("{uri}{path}"), pieces);
        let none = || futures_util::stream::empty().boxed_local();
        let one = |data| futures_util::stream::iter([Ok(Frame::data(data))]).boxed_local();
        let (piece, pieces) = async_channel::unbounded();
        let pieces = pieces.map(|data| Ok(Frame::data(data))).boxed_local();
        let response = client.send(with("POST", "/echo", pieces)).await.unwrap();
        let head = wakeful::spawn({
            let (client, request) = (client.clone(), with("GET", "/gated", none()));
            async move { client.send(request).await.map(drop).unwrap_err() }
        });
        gate.one_entered().await;
        piece.send(Data("comes".into(), DataPanics::Never)).await.unwrap();
        let mut body = response.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "comes");
        let body = wakeful::spawn(async move {
            let error = body.frame().await.unwrap().unwrap_err();
            assert!(body.is_end_stream() && body.frame().await.is_none());
            error
        });
        let bad = async |panics| {
            let request = with("POST", "/echo", one(Data("bad".into(), panics)));
            // If the panic comes in the task that sends the rest, a response may have come before.
            if let Ok(response) = timeout(GUARD, client.send(request)).await.unwrap() {
                timeout(GUARD, response.into_body().collect()).await.unwrap().unwrap_err();
            }
        };
        bad(DataPanics::InRemaining).await;
        assert!(!head.is_finished() && !body.is_finished(), "another request ended");
        bad(DataPanics::InChunk).await;
        for ended in [head, body] {
            let error = timeout(GUARD, ended).await.expect("it is told").unwrap();
            assert!(matches!(error, ClientError::Panicked { .. }), "{error}");
            assert!(!error.is_request_body() && !error.is_timeout());
        }
        drop(piece);
        let data = Data("goes on".into(), DataPanics::InDrop);
        let response = client.send(with("POST", "/echo", one(data))).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "goes on");
        gate.open();
        assert_eq!(client.counts().opened(), 2);
    });
}

/// What is left of a body of HTTP/1 whose connection is dropped is an error, and no end.
#[test]
fn a_response_of_http1_that_a_panic_cuts_off_is_not_taken_for_a_whole_one() {
    let running = server().start(router()).unwrap();
    let uri = format!("http://{}/echo", addr(&running));
    on_a_loop(async {
        let client = Client::builder().build();
        let (piece, pieces) = async_channel::unbounded();
        let pieces = pieces.map(|data| Ok::<_, Infallible>(Frame::data(data))).boxed_local();
        let request = Request::post(&uri).body(StreamBody::new(pieces)).unwrap();
        let first = Data("comes".into(), DataPanics::Never);
        piece.send(first).await.unwrap();
        let mut body = client.send(request).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "comes");
        piece.send(Data("bad".into(), DataPanics::InChunk)).await.unwrap();
        let error = timeout(GUARD, body.frame()).await.unwrap().expect("it is not at its end");
        assert!(matches!(error, Err(ClientError::Body { .. })), "{error:?}");
    });
}

/// Panics in its drop; or its clones do, of which one is kept to be sent again.
struct Extension {
    panics: bool,
    clones_panic: bool,
}

impl Clone for Extension {
    fn clone(&self) -> Self {
        Self { panics: self.clones_panic, ..*self }
    }
}

impl Drop for Extension {
    fn drop(&mut self) {
        assert!(!self.panics, "in the drop of an extension, on purpose");
    }
}

#[test]
fn an_extension_that_panics_in_its_drop_costs_neither_the_answer_nor_its_connection() {
    let one_stream = Http2Limits::new().max_streams(1);
    let running = server().limits(Limits::new().http2(one_stream)).start(router()).unwrap();
    on_a_loop(async {
        for version in [HttpVersion::Http1, HttpVersion::Http2] {
            let (client, host) =
                host(Client::builder().max_connections(1), addr(&running), version);
            assert_eq!(text(host.send(get("/")).await).await, "hello");
            for _ in 0..2 {
                let mut request = get("/");
                request.extensions_mut().insert(Extension { panics: false, clones_panic: true });
                let host = host.clone();
                let sent = wakeful::spawn(async move { text(host.send(request).await).await });
                assert_eq!(sent.await.unwrap(), "hello");
            }
            assert_eq!(client.counts().opened(), 1);
        }
    });
}

#[test]
fn an_extension_that_panics_in_its_drop_costs_no_other_request_of_its_connection() {
    let (gate, app) = Gate::on(router());
    let running = server().start(app).unwrap();
    on_a_loop(async {
        let (client, host) = http2(Client::builder().max_connections(1), addr(&running));
        let other = wakeful::spawn({
            let host = host.clone();
            async move { text(host.send(get("/gated")).await).await }
        });
        gate.one_entered().await;
        let mut request = get("/");
        request.extensions_mut().insert(Extension { panics: true, clones_panic: false });
        assert_eq!(text(host.send(request).await).await, "hello");
        gate.open();
        assert_eq!(other.await.unwrap(), "released");
        assert_eq!(client.counts().opened(), 1);
    });
}

/// Of a header value's bytes.
struct PanickingOwner(String);

impl AsRef<[u8]> for PanickingOwner {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Drop for PanickingOwner {
    fn drop(&mut self) {
        panic!("in the drop of a header's value, on purpose")
    }
}

/// h2 keeps values of several requests together, and drops an old one with a new one in its hands.
#[test]
fn header_values_that_panic_in_their_drop_cost_neither_their_connection_nor_the_process() {
    let running = server().start(router()).unwrap();
    on_a_loop(async {
        let (client, host) = http2(Client::builder().max_connections(1), addr(&running));
        // More than the table of an encoder holds.
        for number in 0..200 {
            let mut request = get("/");
            for name in ["first", "second"] {
                let bytes = Bytes::from_owner(PanickingOwner(number.to_string()));
                let value = HeaderValue::from_maybe_shared(bytes).unwrap();
                request.headers_mut().insert(name, value);
            }
            assert_eq!(text(host.send_replayable(request).await).await, "hello");
        }
        assert_eq!(client.counts().opened(), 1);
    });
}
