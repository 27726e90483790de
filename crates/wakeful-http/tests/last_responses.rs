//! A connection's last response comes whole, also to a client that reads it slowly and says
//! something as it does. A socket that is closed then answers by a reset, which cuts the response
//! off.

mod common;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use futures_lite::stream;
use hyper::body::{Body, Frame};
use socket2::{Domain, Socket, Type};
use wakeful_http::{Limits, MaxAge, Refusal, Running};

use common::frames::{Client, *};
use common::*;

/// More than the sockets of both sides have room for at once, and less than the server's alone may
/// come to have.
const LARGE: usize = 3 << 20;
/// More than the server's socket alone has room for.
const LARGEST: usize = 32 << 20;
const WINDOW: u32 = 64 << 20;

fn app() -> Router {
    let after_the_start_of_a_drain = || async {
        wakeful_http::drain_begins().await;
        vec![7; LARGE]
    };
    router()
        .route("/large", get(|| async { vec![7; LARGE] }))
        .route("/late", get(after_the_start_of_a_drain))
}

/// Its kernel keeps little of what it has not read.
fn connect(running: &Running) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(32 << 10).unwrap();
    socket.connect(&addr(running).into()).unwrap();
    socket.set_read_timeout(Some(GUARD)).unwrap();
    socket.into()
}

/// All streams may have as much as they like, at first.
fn http2_client(running: &Running) -> Client {
    let mut client = Client { stream: connect(running) };
    client.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    client.send(SETTINGS, 0, 0, &[&[0, 4], &WINDOW.to_be_bytes()[..]].concat());
    client.send(WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes());
    client
}

/// Reads a response to its end, and gives back the room that it took, as clients do.
fn read_large(client: &mut Client) {
    assert_eq!(read_response(client), LARGE);
}

fn read_response(client: &mut Client) -> usize {
    let mut read = 0;
    loop {
        let frame = client.wait_for_any();
        if frame.kind == DATA {
            read += frame.payload.len();
            if frame.flags & END_STREAM != 0 {
                return read;
            }
            let room = u32::try_from(frame.payload.len()).unwrap().to_be_bytes();
            client.send(WINDOW_UPDATE, 0, 0, &room);
        }
    }
}

#[test]
fn the_last_response_of_an_http2_connection_comes_whole_however_slowly_it_is_read() {
    let limits = Limits::new().max_requests_per_connection(1);
    let running = server().limits(limits).start(app()).unwrap();
    let mut client = http2_client(&running);
    client.get(1, "/large");
    read_large(&mut client);
    drop(client);
    until("it is closed", || running.counts().open() == 0);
}

#[test]
fn in_a_drain_a_response_of_http2_comes_whole_however_slowly_it_is_read() {
    let running = server().start(app()).unwrap();
    let mut client = http2_client(&running);
    client.get(1, "/late");
    let counts = running.http_counts();
    until("it is in flight", || counts.in_flight() == 1);
    let drain = thread::spawn(move || running.shutdown(GUARD).unwrap());
    read_large(&mut client);
    drop(client);
    assert_eq!(drain.join().unwrap(), 0);
}

/// The kernel has all of the response, so nothing is in flight. The client takes longer to read it
/// than it may take to leave.
#[test]
fn a_response_of_http2_that_the_kernel_holds_comes_whole_after_the_client_was_told_to_leave() {
    let max_age = MaxAge::new(Duration::from_millis(200)).grace(Duration::from_millis(200));
    let app = Router::new().route("/first", get(|| async { vec![7; FIRST] }));
    let running = server().limits(Limits::new().max_age(max_age)).start(app).unwrap();
    let mut client = http2_client(&running);
    client.get(1, "/first");
    thread::sleep(Duration::from_secs(1));
    assert_eq!(read_response(&mut client), FIRST);
    drop(client);
    until("it is closed", || running.counts().open() == 0);
}

/// What is after the last request that is answered is unread when the connection closes.
#[test]
fn responses_to_pipelined_requests_come_whole_though_there_are_more_requests_than_answers() {
    const ANSWERED: u64 = 20;
    let limits = Limits::new().max_requests_per_connection(ANSWERED);
    let app = Router::new().route("/large", get(|| async { vec![b'x'; LARGE / 20] }));
    let running = server().limits(limits).start(app).unwrap();
    let mut stream = connect(&running);
    let requests = b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n".repeat(3000);
    let mut writer = stream.try_clone().unwrap();
    // Beside the reading: the server may stop to read.
    let writes = thread::spawn(move || writer.write_all(&requests));
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).unwrap();
    let bytes = answers.iter().filter(|byte| **byte == b'x').count();
    assert!(bytes >= LARGE / 20 * 20, "{bytes} of {LARGE} have come");
    drop(stream);
    // It may have been closed before all was written.
    let _ = writes.join().unwrap();
    until("it is closed", || running.counts().open() == 0);
}

const GET: &str = "GET /gated HTTP/1.1\r\nhost: x\r\n\r\n";

/// `/gated` is answered by `length` bytes, once the gate is open.
fn gated(length: usize) -> (Gate, Router) {
    let respond = axum::middleware::map_response(move |response: Response| {
        std::future::ready(response.map(|_| axum::body::Body::from(vec![b'x'; length])))
    });
    let (gate, app) = Gate::on(Router::new());
    (gate, app.layer(respond))
}

/// Reads to the end. Returns how much of the body has come.
fn read_body(stream: &mut impl Read) -> usize {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    let header = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
    answer.len() - header - 4
}

/// hyper does not read while it answers, so the second request is in the kernel as it closes.
#[test]
fn the_last_response_comes_whole_though_another_request_was_sent_before_it() {
    let (gate, app) = gated(FIRST);
    let limits = Limits::new().max_requests_per_connection(1);
    let running = server().limits(limits).start(app).unwrap();
    let mut stream = connect(&running);
    stream.write_all(GET.as_bytes()).unwrap();
    gate.wait_for_one();
    stream.write_all(GET.as_bytes()).unwrap();
    gate.open();
    until("it is answered", || running.http_counts().in_flight() == 0);
    assert_eq!(read_body(&mut stream), FIRST);
    drop(stream);
    until("it is closed", || running.counts().open() == 0);
}

#[test]
fn in_a_drain_a_response_comes_whole_though_another_request_was_sent_before_it() {
    let running = server().start(app()).unwrap();
    let mut stream = connect(&running);
    let get = "GET /late HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(get.as_bytes()).unwrap();
    let counts = running.http_counts();
    until("it is in flight", || counts.in_flight() == 1);
    stream.write_all(get.as_bytes()).unwrap();
    let drain = thread::spawn(move || running.shutdown(GUARD).unwrap());
    assert_eq!(read_body(&mut stream), LARGE);
    drop(stream);
    assert_eq!(drain.join().unwrap(), 0);
}

/// The kernel has the response, and the client has next to nothing of it.
#[test]
fn the_last_response_comes_whole_though_more_requests_are_sent_after_it() {
    let (gate, app) = gated(FIRST);
    gate.open();
    let limits = Limits::new().max_requests_per_connection(1);
    let running = server().limits(limits).start(app).unwrap();
    let mut stream = connect(&running);
    stream.write_all(GET.as_bytes()).unwrap();
    gate.wait_for_one();
    until("it is answered", || running.http_counts().in_flight() == 0);
    for _ in 0..10 {
        // If it is reset, a later write fails.
        let _ = stream.write_all(GET.as_bytes());
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(read_body(&mut stream), FIRST);
    drop(stream);
    until("it is closed", || running.counts().open() == 0);
}

/// As some clients ask on every connection, for `h2c`. The body is not read, so hyper ends the
/// connection after the response, by its way for upgrades.
#[test]
fn an_early_response_to_a_request_that_asks_for_an_upgrade_comes_whole() {
    let app = Router::new().route("/large", post(|| async { vec![b'x'; LARGEST] }));
    let running = server().start(app).unwrap();
    let mut stream = connect(&running);
    let request = "POST /large HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\
        content-length: 10000000\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    until("it is answered", || running.http_counts().in_flight() == 0);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    let bytes = answer.iter().filter(|byte| **byte == b'x').count();
    assert!(bytes >= LARGEST, "{bytes} of {LARGEST} have come");
}

/// Less than the server's socket has room for, and more than the client's.
const FIRST: usize = 128 << 10;

/// Sets its flag, and then fails in one of two ways.
struct FailingBody {
    panics: bool,
    has_failed: Arc<AtomicBool>,
}

impl Body for FailingBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.has_failed.store(true, Ordering::Release);
        assert!(!self.panics, "on purpose");
        Poll::Ready(Some(Err(io::Error::other("on purpose"))))
    }
}

/// Asks for `/first`, for a response that does not come whole, and for more, in one go. What comes
/// after the second request is unread when the connection closes. A client of HTTP/1.0 learns only
/// by a reset that the second response has not come whole.
fn the_first_comes_whole(
    running: &Running,
    [second, version]: [&str; 2],
    has_ended: impl Fn() -> bool,
) {
    let mut stream = connect(running);
    let request = |path, version| format!("GET {path} HTTP/{version}\r\nhost: x\r\n\r\n");
    let more = request("/first", "1.1").repeat(3000);
    let requests = [request("/first", "1.1"), request(second, version), more].concat();
    let mut writer = stream.try_clone().unwrap();
    let writes = thread::spawn(move || writer.write_all(requests.as_bytes()));
    until("it has ended", has_ended);
    let mut answers = Vec::new();
    assert_eq!(stream.read_to_end(&mut answers).is_ok(), version == "1.1", "is it cut off?");
    let first = answers.windows(2).position(|pair| pair == b"xx").unwrap();
    let answer = answers.get(first..first + FIRST);
    assert!(answer.is_some_and(|answer| answer.iter().all(|byte| *byte == b'x')));
    drop(stream);
    let _ = writes.join().unwrap();
    until("it is closed", || running.counts().open() == 0);
}

#[test]
fn the_response_before_one_that_fails_comes_whole() {
    for (panics, version) in [(false, "1.1"), (true, "1.1"), (false, "1.0"), (true, "1.0")] {
        let has_failed = Arc::new(AtomicBool::new(false));
        let flag = has_failed.clone();
        let fails = move || {
            let body = FailingBody { panics, has_failed: flag.clone() };
            async { axum::body::Body::new(body) }
        };
        let app = Router::new()
            .route("/first", get(|| async { vec![b'x'; FIRST] }))
            .route("/fails", get(fails));
        let running = server().start(app).unwrap();
        let has_failed = || has_failed.load(Ordering::Acquire);
        the_first_comes_whole(&running, ["/fails", version], has_failed);
    }
}

/// What it reads within [`PAUSE`]. The whole takes far longer than a client may take to leave.
const PIECE: usize = 8 << 10;
const PAUSE: Duration = Duration::from_millis(300);

/// Reads the response of [`FIRST`] bytes piece by piece, and asks for more with each piece.
fn reads_slowly_and_sends(stream: &mut TcpStream) {
    let mut answer = Vec::new();
    let first = |answer: &[u8]| answer.iter().filter(|byte| **byte == b'x').count();
    while first(&answer) < FIRST {
        // If it was reset, the read tells.
        let _ = stream.write_all(GET.as_bytes());
        let mut piece = [0; PIECE];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "{} of {FIRST} have come", first(&answer));
        answer.extend_from_slice(&piece[..count]);
        thread::sleep(PAUSE);
    }
}

#[test]
fn the_response_before_one_that_fails_comes_whole_however_slowly_it_is_read() {
    let has_failed = Arc::new(AtomicBool::new(false));
    let flag = has_failed.clone();
    let fails = move || {
        let body = FailingBody { panics: false, has_failed: flag.clone() };
        async { axum::body::Body::new(body) }
    };
    let app = Router::new()
        .route("/first", get(|| async { vec![b'x'; FIRST] }))
        .route("/fails", get(fails));
    let running = server().start(app).unwrap();
    let mut stream = connect(&running);
    let request = |path| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all([request("/first"), request("/fails")].concat().as_bytes()).unwrap();
    until("it has failed", || has_failed.load(Ordering::Acquire));
    reads_slowly_and_sends(&mut stream);
    drop(stream);
    until("it is closed", || running.counts().open() == 0);
}

fn the_first_comes_whole_before(request: &str, refusal: Refusal) {
    let app = Router::new().route("/first", get(|| async { vec![b'x'; FIRST] }));
    let running = server().start(app).unwrap();
    let mut stream = connect(&running);
    let requests = format!("GET /first HTTP/1.1\r\nhost: x\r\n\r\n{request}\r\n\r\n");
    stream.write_all(requests.as_bytes()).unwrap();
    let counts = running.http_counts();
    until("it is refused", || counts.refused(refusal) == 1);
    reads_slowly_and_sends(&mut stream);
    drop(stream);
    until("it is closed", || running.counts().open() == 0);
}

#[test]
fn the_response_before_a_malformed_request_comes_whole_however_slowly_it_is_read() {
    the_first_comes_whole_before("no request", Refusal::Malformed);
}

#[test]
fn the_response_before_a_request_that_is_too_large_comes_whole_however_slowly_it_is_read() {
    let header = format!("GET / HTTP/1.1\r\nhost: x\r\nlong: {}", "x".repeat(200 << 10));
    the_first_comes_whole_before(&header, Refusal::HeaderTooLarge);
}

#[test]
fn the_response_before_one_that_a_time_limit_ends_comes_whole() {
    for version in ["1.1", "1.0"] {
        let endless =
            || async { axum::body::Body::from_stream(stream::pending::<io::Result<Bytes>>()) };
        let app = Router::new()
            .route("/first", get(|| async { vec![b'x'; FIRST] }))
            .route("/endless", get(endless));
        let limits = Limits::new().request_timeout(Duration::from_millis(300));
        let running = server().limits(limits).start(app).unwrap();
        let counts = running.http_counts();
        let has_ended = || counts.refused(Refusal::RequestTimeout) == 1;
        the_first_comes_whole(&running, ["/endless", version], has_ended);
    }
}
