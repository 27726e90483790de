//! What each limit answers over HTTP/1.1, and that it is counted.

mod common;

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use futures_lite::stream;
use http_body_util::BodyExt;
use socket2::{Domain, Socket, Type};
use tracing::Span;
use wakeful::LoopGroup;
use wakeful::net::ListenAddr;
use wakeful_http::observe::Observe;
use wakeful_http::{
    AmbiguousLength, DrainPlan, GrpcCalls, Http2Limits, Limits, MaxAge, MinRate, PeerRate, Refusal,
    Running, Server,
};

use common::*;

const SHORT: Duration = Duration::from_millis(100);

/// A time that no clock can hold disables a limit.
#[test]
fn times_that_no_clock_can_hold_are_never_over() {
    const NEVER: Duration = Duration::MAX;
    let http2 = Http2Limits::new().ping_interval(NEVER).ping_timeout(NEVER);
    let limits = Limits::new()
        .header_timeout(NEVER)
        .idle_timeout(NEVER)
        .body_timeout(NEVER)
        .request_timeout(NEVER)
        .keepalive(NEVER)
        .min_rate(MinRate::new(1, NEVER))
        .max_age(MaxAge::new(SHORT).jitter(0.0).grace(NEVER))
        .http2(http2);
    let plan = DrainPlan::new().linger(NEVER).grace(NEVER);
    let running = start(limits);
    let mut kept = raw(&running);
    for _ in 0..2 {
        kept.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        assert!(kept.read(&mut [0; 1024]).expect("an answer") > 0);
    }
    let mut client = frames::Client::new(&running);
    client.get(1, "/");
    assert_eq!(client.wait_for(frames::DATA).payload, b"hello");
    // It grows too old, which ends it in the end.
    until("it is closed", || {
        let _ = kept.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        !matches!(kept.read(&mut [0; 1024]), Ok(1..))
    });
    drop((kept, client));
    until("all are closed", || running.counts().open() == 0);
    assert_eq!(running.drain(plan).unwrap(), 0);
}

fn start(limits: Limits) -> Running {
    server().limits(limits).start(app()).unwrap()
}

fn app() -> Router {
    router()
        .route("/read", post(|body: Bytes| async move { body.len().to_string() }))
        // Reads its body in a task of its own, and answers whatever comes of it.
        .route(
            "/swallow",
            post(|_: Result<Bytes, axum::extract::rejection::BytesRejection>| async { "fine" }),
        )
        .route("/begin", get(|| async { Body::from_stream(begins_and_waits()) }))
        .route("/large", get(|| async { vec![b'w'; 8 << 20].into_response() }))
}

/// A first piece, and never another one.
fn begins_and_waits() -> impl stream::Stream<Item = Result<Bytes, std::io::Error>> {
    use futures_lite::StreamExt;
    stream::once(Ok(Bytes::from_static(b"begun"))).chain(stream::pending())
}

fn ask(running: &Running, text: &str) -> TcpStream {
    let mut stream = raw(running);
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

fn answer(running: &Running, text: &str) -> String {
    read_all(ask(running, text))
}

fn get_request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")
}

fn assert_closes_with(answer: &str, status: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer:?}");
    assert!(answer.contains("connection: close"), "{answer:?}");
}

/// One response, of a connection that stays.
fn read_response(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    loop {
        let mut byte = [0; 1];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "closed behind {text:?}");
        text.push(byte[0]);
        let Some(end) = text.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&text[..end]).into_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if text.len() == end + 4 + length.map_or(0, |length| length.parse().unwrap()) {
            return String::from_utf8(text).unwrap();
        }
    }
}

fn refused(running: &Running, refusal: Refusal) -> u64 {
    running.http_counts().refused(refusal)
}

/// Some are counted only when the client has been told.
fn counted(running: &Running, refusal: Refusal, times: u64) {
    until("it is counted", || refused(running, refusal) >= times);
    assert_eq!(refused(running, refusal), times, "{refusal:?}");
}

#[test]
fn a_header_that_does_not_end_is_408_and_a_client_that_says_nothing_gets_nothing() {
    let running = start(Limits::new().header_timeout(SHORT));
    assert_closes_with(&answer(&running, "GET / HTTP/1.1\r\nhos"), "408");
    assert_eq!(read_all(raw(&running)), "");
    // It may become either protocol.
    assert_closes_with(&answer(&running, "P"), "408");
    counted(&running, Refusal::HeaderTimeout, 3);
    // Also after a request, from the first byte on.
    let mut stream = ask(&running, &get_request("/"));
    assert!(read_response(&mut stream).ends_with("hello"));
    stream.write_all(b"GET").unwrap();
    assert_closes_with(&read_all(stream), "408");
    counted(&running, Refusal::HeaderTimeout, 4);
    is_served(&running);
}

#[test]
fn a_header_byte_by_byte_does_not_win_time() {
    let running = start(Limits::new().header_timeout(SHORT));
    let mut stream = ask(&running, "GET / HTTP/1.1\r\nx: ");
    stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut answer = Vec::new();
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < GUARD, "it goes on for ever");
        let mut buf = [0; 1024];
        match stream.read(&mut buf) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&buf[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let _ = stream.write_all(b"y");
            }
            Err(_) => break,
        }
    }
    assert_closes_with(&String::from_utf8(answer).unwrap(), "408");
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let running = start(Limits::new().idle_timeout(SHORT));
    let mut stream = ask(&running, &get_request("/"));
    assert!(read_response(&mut stream).ends_with("hello"));
    assert_eq!(read_all(stream), "");
    counted(&running, Refusal::IdleTimeout, 1);
    assert_eq!(refused(&running, Refusal::HeaderTimeout), 0);
}

#[test]
fn a_body_of_which_nothing_more_comes_is_408() {
    let limits = Limits::new().body_timeout(SHORT);
    let running = start(limits);
    let post = "POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf";
    assert_closes_with(&answer(&running, post), "408");
    let post = "POST /read HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    assert_closes_with(&answer(&running, post), "408");
    counted(&running, Refusal::BodyTimeout, 2);
    // Once the response has begun there is nothing left to answer.
    let echo = "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf";
    let text = answer(&running, echo);
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("half"), "{text}");
    counted(&running, Refusal::BodyTimeout, 3);
}

#[test]
fn a_body_that_nobody_waits_for_may_take_its_time() {
    let limits = Limits::new().body_timeout(Duration::from_millis(10));
    let running = start(limits);
    // The handler sleeps for 50 ms and never reads.
    let post = "GET /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf";
    assert!(read_response(&mut ask(&running, post)).ends_with("slow"));
    assert_eq!(refused(&running, Refusal::BodyTimeout), 0);
}

/// As where another branch of a `select!` runs for long.
#[test]
fn a_body_that_has_come_may_be_read_late_by_who_has_asked_for_it_before() {
    const LIMIT: Duration = Duration::from_millis(400);
    let (tell, asked) = mpsc::channel();
    let read_late = async move |mut body: Body| {
        assert!(futures_util::poll!(body.frame()).is_pending());
        tell.send(()).unwrap();
        wakeful::time::sleep(3 * LIMIT).await;
        body.collect().await.unwrap().to_bytes()
    };
    let read_late = post(read_late);
    let only_in_time = Limits::new().body_timeout(LIMIT).min_rate(None);
    let only_fast = Limits::new().body_timeout(None).min_rate(MinRate::new(100, LIMIT));
    for limits in [only_in_time, only_fast] {
        let app = Router::new().route("/late", read_late.clone());
        let running = server().limits(limits).start(app).unwrap();
        let mut stream =
            ask(&running, "POST /late HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n");
        asked.recv_timeout(GUARD).unwrap();
        stream.write_all(b"hello").unwrap();
        assert!(read_response(&mut stream).ends_with("hello"));
        let mut client = frames::Client::new(&running);
        let head = frames::head("POST", "/late");
        client.send(frames::HEADERS, frames::END_HEADERS, 1, &head);
        asked.recv_timeout(GUARD).unwrap();
        client.send(frames::DATA, frames::END_STREAM, 1, b"hello");
        assert_eq!(client.wait_for(frames::DATA).payload, b"hello");
    }
}

#[test]
fn who_calls_himself_grpc_where_nothing_is_has_the_limits_of_all() {
    let limits = Limits::new().body_timeout(SHORT).request_timeout(SHORT * 4);
    let running = start(limits);
    let claim = "content-type: application/grpc";
    let half =
        format!("POST /read HTTP/1.1\r\nhost: x\r\n{claim}\r\ncontent-length: 10\r\n\r\nhalf");
    assert_closes_with(&answer(&running, &half), "408");
    counted(&running, Refusal::BodyTimeout, 1);
    let never = format!("GET /never HTTP/1.1\r\nhost: x\r\n{claim}\r\n\r\n");
    assert_closes_with(&answer(&running, &never), "503");
    counted(&running, Refusal::RequestTimeout, 1);
}

#[test]
fn grpc_streams_and_what_they_wait_for_have_no_such_limits_where_the_server_says_so() {
    let limits = Limits::new()
        .grpc_calls(GrpcCalls::Unlimited)
        .body_timeout(SHORT)
        .request_timeout(SHORT * 4)
        .max_body(10);
    let running = start(limits);
    // But its size counts: anybody may call himself gRPC.
    let large = "POST /read HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc\r\ncontent-length: 11\r\n\r\n";
    assert_closes_with(&answer(&running, large), "413");
    let large = "POST /swallow HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n\
                 b\r\nhello world\r\n0\r\n\r\n";
    assert_closes_with(&answer(&running, large), "413");
    counted(&running, Refusal::BodyTooLarge, 2);
    let head = "POST /read HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc+proto\r\ncontent-length: 10\r\n\r\n";
    let mut stream = ask(&running, &format!("{head}half"));
    // Others, but for their type the same, tell that the time has passed.
    let post = "POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nhal";
    assert_closes_with(&answer(&running, post), "408");
    assert_closes_with(&answer(&running, &get_request("/never")), "503");
    stream.write_all(b"other.").unwrap();
    assert!(read_response(&mut stream).ends_with("10"));
}

#[test]
fn a_request_that_takes_too_long_is_503_and_what_it_has_begun_is_cut_off() {
    let limits = Limits::new().request_timeout(SHORT);
    let running = start(limits);
    assert_closes_with(&answer(&running, &get_request("/never")), "503");
    counted(&running, Refusal::RequestTimeout, 1);
    let text = answer(&running, &get_request("/begin"));
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("begun"), "{text}");
    assert!(!text.ends_with("0\r\n\r\n"), "its end would say that it is whole: {text}");
    counted(&running, Refusal::RequestTimeout, 2);
    assert_eq!(running.http_counts().in_flight(), 0);
}

/// hyper holds all of it.
#[test]
fn a_whole_response_that_nobody_takes_is_cut_off_when_its_request_takes_too_long() {
    let running = start(Limits::new().request_timeout(SHORT).min_rate(None));
    let stream = ask(&running, &get_request("/large"));
    counted(&running, Refusal::RequestTimeout, 1);
    until("the connection is closed", || running.counts().open() == 0);
    drop(stream);
}

/// Its request's body is held, and nothing more comes of it.
#[test]
fn a_client_that_reads_its_response_is_not_idle() {
    let (hold, held) = mpsc::channel();
    let hold = move |body: Body| {
        let hold = hold.clone();
        async move {
            hold.send(body.into_data_stream()).unwrap();
            vec![b'w'; 8 << 20]
        }
    };
    let limits = Limits::new().idle_timeout(SHORT);
    let app = Router::new().route("/large", post(hold));
    let running = server().limits(limits).start(app).unwrap();
    let mut stream = ask(
        &running,
        "POST /large HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nconnection: close\r\n\r\n1",
    );
    let mut read = 0;
    for _ in 0..60 {
        thread::sleep(Duration::from_millis(50));
        let mut piece = [0; 4096];
        stream.read_exact(&mut piece).unwrap();
        read += piece.len();
    }
    read += io::copy(&mut stream, &mut io::sink()).unwrap() as usize;
    assert!(read > 8 << 20, "{read}");
    drop(held);
}

/// A handler whose work is never done, and which lets others run all the time.
#[test]
fn who_spends_his_whole_budget_in_every_poll_is_late_like_any_other() {
    let toil = || async {
        loop {
            wakeful::task::consume_budget().await;
        }
        #[allow(unreachable_code)]
        ""
    };
    let pieces = || {
        stream::unfold((), |()| async {
            wakeful::task::consume_budget().await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b"more")), ()))
        })
    };
    let router = app()
        .route("/toil", get(toil))
        .route("/pieces", get(move || async move { Body::from_stream(pieces()) }));
    let limits = Limits::new().request_timeout(SHORT);
    let running = server().limits(limits).start(router).unwrap();
    let late = answer(&running, &get_request("/toil"));
    assert_closes_with(&late, "503");
    let cut = answer(&running, &get_request("/pieces"));
    assert!(cut.starts_with("HTTP/1.1 200") && !cut.ends_with("0\r\n\r\n"));
    counted(&running, Refusal::RequestTimeout, 2);
}

#[test]
fn a_body_that_trickles_is_408_and_a_response_that_nobody_takes_is_aborted() {
    let rate = MinRate::new(1_000_000, SHORT);
    let running = start(Limits::new().min_rate(rate));
    let mut stream =
        ask(&running, "POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n");
    stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut answer = Vec::new();
    loop {
        let mut buf = [0; 1024];
        match stream.read(&mut buf) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&buf[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let _ = stream.write_all(b"y");
            }
            Err(_) => break,
        }
    }
    assert_closes_with(&String::from_utf8(answer).unwrap(), "408");
    counted(&running, Refusal::SlowRequest, 1);
    let mut stream = ask(&running, &get_request("/large"));
    until("the response is aborted", || refused(&running, Refusal::SlowResponse) == 1);
    until("the connection is closed", || running.counts().open() == 0);
    // Otherwise the kernel would keep megabytes for minutes.
    let end = io::copy(&mut stream, &mut io::sink());
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    is_served(&running);
}

/// Reads the response to a request for `/large`, of 8 MiB: for a few seconds little at a time, and
/// then the rest.
fn read_steadily_and_then_the_rest(mut stream: impl Read + Write) {
    const PIECE: usize = 4 << 10;
    stream.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut read = 0;
    for _ in 0..80 {
        thread::sleep(Duration::from_millis(50));
        let mut piece = vec![0; PIECE];
        stream.read_exact(&mut piece).unwrap();
        read += PIECE;
    }
    read += io::copy(&mut stream, &mut io::sink()).unwrap() as usize;
    assert!(read > 8 << 20, "{read}");
}

/// The kernel lets the server write again only when much of a large buffer has room. That takes
/// such a client several times as long as the rate's window.
#[test]
fn a_client_that_reads_steadily_is_not_aborted_though_the_socket_takes_nothing_for_long() {
    let limits = || Limits::new().min_rate(MinRate::new(1000, Duration::from_secs(1)));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = ListenAddr::Unix(path.clone());
    let of_unix = Server::bind(listener).unwrap().limits(limits()).start(app()).unwrap();
    let of_tcp = start(limits());
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(32 << 10).unwrap();
    socket.connect(&addr(&of_tcp).into()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| read_steadily_and_then_the_rest(TcpStream::from(socket)));
        scope.spawn(|| read_steadily_and_then_the_rest(UnixStream::connect(path).unwrap()));
    });
    for running in [of_tcp, of_unix] {
        assert_eq!(refused(&running, Refusal::SlowResponse), 0);
    }
}

#[test]
fn beyond_a_peer_s_connections_the_next_one_is_503_and_a_place_comes_back() {
    let running = start(Limits::new().max_connections_per_peer(2));
    let mut first = ask(&running, &get_request("/"));
    let mut second = ask(&running, &get_request("/"));
    read_response(&mut first);
    read_response(&mut second);
    assert_closes_with(&answer(&running, &get_request("/")), "503");
    counted(&running, Refusal::PeerConnections, 1);
    drop(first);
    until("the place is free", || running.counts().open() == 1);
    is_served(&running);
}

/// None of them closes its side. The server waits for as many of them as the peer may have
/// connections.
#[test]
fn a_peer_s_connections_beyond_its_limit_do_not_take_the_places_of_others() {
    let running = start(Limits::new().max_connections_per_peer(1));
    let mut served = ask(&running, &get_request("/"));
    read_response(&mut served);
    let refused: Vec<_> = (0..20).map(|_| raw(&running)).collect();
    for stream in &refused {
        assert_closes_with(&read_all(stream.try_clone().unwrap()), "503");
    }
    counted(&running, Refusal::PeerConnections, 20);
    // The last one of each loop may not be over yet.
    let open = running.counts().open();
    assert!(open <= 4, "{open} are open");
    drop(refused);
    until("only one is left", || running.counts().open() == 1);
    served.write_all(get_request("/").as_bytes()).unwrap();
    assert!(read_response(&mut served).ends_with("hello"));
}

#[test]
fn too_many_requests_at_a_time_are_503_and_the_connection_stays() {
    let (gate, app) = Gate::on(app());
    let limits = Limits::new().max_requests(1);
    let running = server().limits(limits).start(app).unwrap();
    let mut busy = ask(&running, &get_request("/gated"));
    gate.wait_for_one();
    let mut stream = ask(&running, &get_request("/"));
    let text = read_response(&mut stream);
    assert!(text.starts_with("HTTP/1.1 503") && text.contains("retry-after: 1"), "{text}");
    counted(&running, Refusal::Requests, 1);
    assert_eq!(running.http_counts().in_flight(), 1);
    gate.open();
    assert!(read_response(&mut busy).ends_with("released"));
    until("it is over", || running.http_counts().in_flight() == 0);
    stream.write_all(get_request("/").as_bytes()).unwrap();
    assert!(read_response(&mut stream).ends_with("hello"));
}

#[test]
fn too_many_requests_a_second_are_429_and_a_new_connection_does_not_help() {
    // One in 1,000 s.
    let rate = PeerRate::new(1).burst(2);
    let running = start(Limits::new().peer_rate(rate));
    let mut stream = ask(&running, &get_request("/").repeat(3));
    assert!(read_response(&mut stream).ends_with("hello"));
    assert!(read_response(&mut stream).ends_with("hello"));
    let text = read_response(&mut stream);
    assert!(text.starts_with("HTTP/1.1 429") && text.contains("retry-after: 1"), "{text}");
    drop(stream);
    let mut stream = ask(&running, &get_request("/").repeat(3));
    let statuses: Vec<_> = (0..3).map(|_| read_response(&mut stream)[9..12].to_owned()).collect();
    assert!(statuses.contains(&"429".to_owned()), "{statuses:?}");
    assert!(refused(&running, Refusal::PeerRate) >= 2);
    assert_eq!(running.http_counts().responses(4), refused(&running, Refusal::PeerRate));
}

/// The client sends its upload to the end, and reads the answer then.
#[test]
fn an_upload_that_is_refused_gets_its_answer_and_no_reset() {
    let running = start(Limits::new().max_uri(50));
    let path = format!("/{}", "x".repeat(60));
    let length = 10 << 20;
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    let mut stream = ask(&running, &head);
    stream.write_all(&[b'x'; 1000]).unwrap();
    counted(&running, Refusal::UriTooLong, 1);
    for _ in 0..10 {
        // The server has closed its side, and reads what it does not want.
        stream.write_all(&vec![b'x'; 100_000]).unwrap();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 414"), "{answer}");
}

/// It reads no answer before it has sent everything, and takes longer than a close otherwise waits.
#[test]
fn a_slow_upload_that_is_refused_gets_its_answer_too() {
    let running = start(Limits::new().max_body(1000));
    let head = "POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 10000000\r\n\r\n";
    let mut stream = ask(&running, head);
    for _ in 0..12 {
        stream.write_all(&[b'x'; 10_000]).unwrap();
        thread::sleep(Duration::from_millis(250));
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_closes_with(&read_all(stream), "413");
}

/// The server reads and discards it already when the drain begins.
#[test]
fn an_upload_that_is_refused_before_a_drain_does_not_hold_it_up() {
    let running = start(Limits::new().max_body(1000));
    let head = "POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 10000000\r\n\r\n";
    let mut stream = ask(&running, head);
    let reader = stream.try_clone().unwrap();
    let uploads = thread::spawn(move || {
        while stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    // To its end: the server's side is closed.
    assert_closes_with(&read_all(reader), "413");
    assert_eq!(running.shutdown(Duration::from_secs(3)).unwrap(), 0);
    uploads.join().unwrap();
}

#[test]
fn a_refusal_that_is_the_last_answer_of_a_connection_says_so() {
    let running = start(Limits::new().max_uri(50).max_requests_per_connection(2));
    let long = get_request(&format!("/{}", "x".repeat(60)));
    let text = answer(&running, &format!("{}{long}", get_request("/")));
    let last = text.rfind("HTTP/1.1").unwrap();
    assert!(!text[..last].contains("connection: close"), "{text}");
    assert_closes_with(&text[last..], "414");
}

#[test]
fn a_header_that_is_too_large_is_431_and_one_that_is_no_http_400() {
    let limits = Limits::new().max_header_size(8 * 1024).max_headers(10);
    let running = start(limits);
    // More than is read before the answer: it arrives all the same.
    let header = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(300_000));
    let text = answer(&running, &header);
    assert_closes_with(&text, "431");
    let many: String = (0..10).map(|n| format!("h{n}: v\r\n")).collect();
    let text = answer(&running, &format!("GET / HTTP/1.1\r\nhost: x\r\n{many}\r\n"));
    assert_closes_with(&text, "431");
    assert_closes_with(&answer(&running, "this is not http\r\n\r\n"), "400");
    counted(&running, Refusal::HeaderTooLarge, 2);
    counted(&running, Refusal::Malformed, 1);
    is_served(&running);
}

#[test]
fn answers_of_hyper_itself_are_counted_by_their_class() {
    let running = start(Limits::new().max_header_size(128 * 1024));
    for malformed in ["this is not http\r\n\r\n", "GET / HTTP/1.1\r\na b: c\r\n\r\n"] {
        assert_closes_with(&answer(&running, malformed), "400");
        // After a request.
        let text = answer(&running, &format!("{}{malformed}", get_request("/")));
        assert!(text.starts_with("HTTP/1.1 200 ") && text.contains("HTTP/1.1 400 "), "{text:?}");
    }
    // It closes without an answer.
    let text = format!("{}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", get_request("/"));
    assert_eq!(answer(&running, &text).matches("HTTP/1.1 ").count(), 1);
    counted(&running, Refusal::Malformed, 5);
    until("all are gone", || running.counts().open() == 0);
    let counts = running.http_counts();
    assert_eq!((counts.responses(2), counts.responses(4), counts.responses(5)), (3, 4, 0));
}

#[test]
fn http1_needs_one_host_and_http10_may_do_without() {
    let running = start(Limits::default());
    for hosts in ["", "host: x\r\nhost: x\r\n", "Host: x\r\nHOST: y\r\n"] {
        let text = answer(&running, &format!("GET / HTTP/1.1\r\n{hosts}\r\n"));
        assert_closes_with(&text, "400");
    }
    assert_closes_with(&answer(&running, "GET http://x/ HTTP/1.1\r\n\r\n"), "400");
    let two = answer(&running, "GET / HTTP/1.0\r\nhost: x\r\nhost: x\r\n\r\n");
    assert!(two.starts_with("HTTP/1.0 400"), "{two}");
    counted(&running, Refusal::Host, 5);
    for honest in ["1.0\r\n", "1.0\r\nhost: x\r\n", "1.1\r\nhost:\r\nconnection: close\r\n"] {
        let text = answer(&running, &format!("GET / HTTP/{honest}\r\n"));
        assert!(text.starts_with("HTTP/1.1 200") || text.starts_with("HTTP/1.0 200"), "{text}");
    }
    counted(&running, Refusal::Host, 5);
}

const CODED: &str = "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n";
const CHUNKS: &str = "5\r\nhello\r\n0\r\n\r\n";

#[test]
fn of_two_lengths_the_coding_counts_and_the_connection_ends() {
    let running = start(Limits::default());
    let text = format!("{CODED}content-length: 5\r\n\r\n{CHUNKS}{}", get_request("/"));
    let text = answer(&running, &text);
    assert_closes_with(&text, "200");
    assert_eq!(text.matches("HTTP/1.1").count(), 1, "{text}");
    assert!(text.contains("5\r\nhello\r\n"), "{text}");
    counted(&running, Refusal::AmbiguousLength, 0);
}

#[test]
fn two_lengths_are_400_where_they_are_refused() {
    let ambiguous_length = AmbiguousLength::Refuse;
    let running = start(Limits::new().ambiguous_length(ambiguous_length));
    let both = format!("{CODED}content-length: 5\r\n\r\n{CHUNKS}");
    let honest = format!("{CODED}\r\n{CHUNKS}{}", get_request("/"));
    let text = answer(&running, &format!("{honest}{both}{}", get_request("/")));
    assert_eq!(text.matches("HTTP/1.1 200").count(), 2, "{text}");
    let last = text.rfind("HTTP/1.1").unwrap();
    assert_closes_with(&text[last..], "400");
    counted(&running, Refusal::AmbiguousLength, 1);
    // A request that is refused for another reason counts as well.
    let long = get_request(&format!("/{}", "x".repeat(60_000)));
    let running = start(Limits::new().ambiguous_length(ambiguous_length).max_uri(50));
    let text = answer(&running, &format!("{long}{honest}{both}"));
    assert!(text.starts_with("HTTP/1.1 414"), "{text}");
    assert_eq!(text.matches("HTTP/1.1 200").count(), 2, "{text}");
    counted(&running, Refusal::AmbiguousLength, 1);
    // So does one whose span panics.
    let observe = Observe::new().span(|head| match head.uri.path() {
        "/panics" => panic!("on purpose"),
        _ => Span::none(),
    });
    let limits = Limits::new().ambiguous_length(ambiguous_length);
    let running = server().limits(limits).observe(observe).start(app()).unwrap();
    let text = answer(&running, &format!("{}{both}", get_request("/panics")));
    assert!(text.starts_with("HTTP/1.1 500"), "{text}");
    assert_closes_with(&text[text.rfind("HTTP/1.1").unwrap()..], "400");
    counted(&running, Refusal::AmbiguousLength, 1);
}

#[test]
fn a_header_is_counted_to_the_byte_from_its_first_line_to_its_empty_line() {
    // hyper's buffer grows to more than that, and takes it all in.
    let limit = 10_000;
    let running = start(Limits::new().max_header_size(limit));
    let of_size = |size: usize| {
        let head = "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 5\r\nx: \r\n\r\n";
        head.replace("x: \r\n\r\n", &format!("x: {}\r\n\r\n", "y".repeat(size - head.len())))
    };
    // What comes after it does not count.
    for _ in 0..3 {
        let text = answer(&running, &format!("{}hello", of_size(limit)));
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("hello"), "{text:?}");
    }
    let text = answer(&running, &format!("{}hello", of_size(limit + 1)));
    assert_closes_with(&text, "431");
    counted(&running, Refusal::HeaderTooLarge, 1);
}

#[test]
fn a_path_that_is_too_long_is_414() {
    let running = start(Limits::new().max_uri(20));
    let mut stream = ask(&running, &get_request(&format!("/{}", "x".repeat(20))));
    assert!(read_response(&mut stream).starts_with("HTTP/1.1 414"));
    stream.write_all(get_request("/").as_bytes()).unwrap();
    assert!(read_response(&mut stream).ends_with("hello"));
    counted(&running, Refusal::UriTooLong, 1);
}

#[test]
fn a_path_beyond_what_hyper_takes_is_414_too() {
    let running = start(Limits::new().max_header_size(128 * 1024));
    let of_length = |length: usize| get_request(&format!("/{}", "x".repeat(length - 1)));
    let mut stream = ask(&running, &of_length(65_534));
    assert!(read_response(&mut stream).starts_with("HTTP/1.1 404"));
    assert_closes_with(&answer(&running, &of_length(65_535)), "414");
    counted(&running, Refusal::UriTooLong, 1);
    assert_eq!(refused(&running, Refusal::HeaderTooLarge), 0);
}

#[test]
fn a_body_that_is_too_large_is_413_at_once_or_when_so_much_has_come() {
    let running = start(Limits::new().max_body(1000));
    let post = |path: &str| format!("POST {path} HTTP/1.1\r\nhost: x\r\n");
    let fits = format!("{}content-length: 1000\r\n\r\n{}", post("/read"), "y".repeat(1000));
    assert!(read_response(&mut ask(&running, &fits)).ends_with("1000"));
    // Before anything of it has come.
    let text = answer(&running, &format!("{}content-length: 1001\r\n\r\n", post("/read")));
    assert_closes_with(&text, "413");
    assert_eq!(running.http_counts().requests(), 2);
    let chunk = format!("1f4\r\n{}\r\n", "y".repeat(500));
    for path in ["/read", "/swallow"] {
        let text = format!("{}transfer-encoding: chunked\r\n\r\n{chunk}{chunk}{chunk}", post(path));
        // Its end never comes.
        assert_closes_with(&answer(&running, &text), "413");
    }
    counted(&running, Refusal::BodyTooLarge, 3);
    let text = format!("{}transfer-encoding: chunked\r\n\r\n{chunk}", post("/echo"));
    let mut stream = ask(&running, &text);
    let mut seen = vec![0; 4096];
    let count = stream.read(&mut seen).unwrap();
    assert!(seen[..count].starts_with(b"HTTP/1.1 200"));
    stream.write_all(chunk.repeat(3).as_bytes()).unwrap();
    let rest = read_all(stream);
    assert!(!rest.ends_with("0\r\n\r\n"), "its end would say that it is whole");
    counted(&running, Refusal::BodyTooLarge, 4);
}

#[test]
fn the_last_request_of_a_connection_is_told_so() {
    let running = start(Limits::new().max_requests_per_connection(3));
    let text = answer(&running, &get_request("/").repeat(5));
    assert_eq!(text.matches("HTTP/1.1 200").count(), 3, "{text}");
    let last = text.rfind("HTTP/1.1").unwrap();
    assert!(!text[..last].contains("connection: close"), "{text}");
    assert!(text[last..].contains("connection: close"), "{text}");
}

/// The loop stands still for longer than the grace, and the request ends soon afterwards.
#[test]
fn a_pause_does_not_use_up_the_grace_of_an_old_connection() {
    let grace = 20 * SHORT;
    let limits = Limits::new()
        .max_age(MaxAge::new(SHORT).jitter(0.0).grace(grace))
        // It is looked at four times in this time.
        .body_timeout(SHORT);
    let (gate, app) = Gate::on(router());
    let server = server().group(LoopGroup::builder().loops(1)).limits(limits);
    let running = server.start(app).unwrap();
    let mut stream = ask(&running, &get_request("/gated"));
    gate.wait_for_one();
    // The grace has begun.
    thread::sleep(3 * SHORT);
    running.handles()[0].post(move || thread::sleep(grace + SHORT)).unwrap();
    let (goes_on, gone_on) = mpsc::channel();
    running.handles()[0].post(move || goes_on.send(()).unwrap()).unwrap();
    gone_on.recv().unwrap();
    // It has looked at the connection.
    thread::sleep(SHORT);
    gate.open();
    assert!(read_response(&mut stream).ends_with("released"));
    counted(&running, Refusal::MaxAge, 0);
}

#[test]
fn an_old_connection_is_told_with_its_next_response_and_ended_after_its_grace() {
    let max_age = MaxAge::new(SHORT).jitter(0.5).grace(SHORT);
    let running = start(Limits::new().max_age(max_age));
    // Busy all the time.
    let mut stream = ask(&running, "");
    loop {
        stream.write_all(get_request("/").as_bytes()).unwrap();
        let text = read_response(&mut stream);
        assert!(text.ends_with("hello"), "{text}");
        if text.contains("connection: close") {
            break;
        }
    }
    assert_eq!(read_all(stream), "");
    // Idle: closed without a word.
    let mut stream = ask(&running, &get_request("/"));
    read_response(&mut stream);
    assert_eq!(read_all(stream), "");
    assert_eq!(refused(&running, Refusal::MaxAge), 0);
    assert_eq!(answer(&running, &get_request("/never")), "");
    counted(&running, Refusal::MaxAge, 1);
}

#[test]
fn who_comes_and_goes_is_counted_and_so_is_every_request() {
    let running = start(Limits::default());
    for _ in 0..10 {
        let stream = raw(&running);
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    // One may be reset while it waits to be accepted.
    until("all are gone", || running.counts().open() == 0 && running.counts().accepted() > 0);
    drop(raw(&running));
    until("they are counted", || {
        refused(&running, Refusal::NoRequest) == running.counts().accepted()
    });
    is_served(&running);
    let counts = running.http_counts();
    until("the request has ended", || counts.in_flight() == 0);
    assert_eq!((counts.requests(), counts.responses(2)), (1, 1));
}

#[test]
fn a_length_that_no_body_has_is_refused_whatever_is_allowed() {
    let running = start(Limits::new().max_body(None));
    for (length, status) in [
        ("9223372036854775808", "413"),
        ("18446744073709551613", "413"),
        // hyper's own marks for bodies without a length.
        ("18446744073709551614", "413"),
        ("18446744073709551615", "413"),
        ("18446744073709551616", "400"),
        ("99999999999999999999999999", "400"),
        ("+5", "400"),
        ("-5", "400"),
        ("0x5", "400"),
        ("", "400"),
    ] {
        // Some of the body comes at once.
        let body = "\n".repeat(50);
        let request =
            format!("POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
        let answer = answer(&running, &request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{length}: {answer:?}");
    }
    assert_eq!(running.http_counts().refused(Refusal::BodyTooLarge), 4);
    is_served(&running);
}

/// A number that is larger than any use needs counts as no limit.
#[test]
fn numbers_that_no_memory_can_hold_are_no_limit_and_no_panic() {
    let many = usize::MAX;
    let http2 = Http2Limits::new()
        .max_streams(u32::MAX)
        .stream_window(u32::MAX)
        .connection_window(u32::MAX)
        .max_frame_size(u32::MAX)
        .max_send_buffer(many)
        .max_pending_resets(many)
        .max_error_resets(many)
        .max_resets_per_second(u32::MAX)
        .max_control_frames_per_second(u32::MAX);
    let limits = Limits::new()
        .max_connections_per_peer(u32::MAX)
        .max_requests(many)
        .peer_rate(PeerRate::new(u32::MAX).burst(u32::MAX))
        .min_rate(MinRate::new(u64::MAX, GUARD))
        .max_header_size(many)
        .max_headers(many)
        .max_uri(many)
        .max_body(u64::MAX)
        .max_requests_per_connection(u64::MAX)
        .http2(http2);
    let running = start(limits);
    is_served(&running);
    let mut client = frames::Client::new(&running);
    client.get(1, "/");
    assert_eq!(client.wait_for(frames::DATA).payload, b"hello");
    // More than a map of them can hold.
    let fields: String = (0..40_000).map(|number| format!("x-{number}: x\r\n")).collect();
    let mut stream = raw(&running);
    stream
        .write_all(
            format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{fields}\r\n").as_bytes(),
        )
        .unwrap();
    assert!(read_all(stream).starts_with("HTTP/1.1 431 "));
    is_served(&running);
    let mut block = frames::head("GET", "/");
    (0..40_000).for_each(|number| block.extend(frames::field(&format!("x-{number}"), "x")));
    let whole = frames::END_HEADERS | frames::END_STREAM;
    client.send(frames::HEADERS, whole, 3, &block);
    let answer = client.wait_for(frames::HEADERS);
    assert_eq!((answer.stream, answer.status().as_str()), (3, "431"));
    let panics: u64 = running.handles().iter().map(|handle| handle.metrics().panics).sum();
    assert_eq!(panics, 0);
}
