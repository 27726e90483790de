//! The server, driven by hyper's own client and by raw sockets.

mod common;

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, ready};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as StdTcpStream};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use wakeful::net::TcpStream;
use wakeful_http::{Limits, RequestBody, Server, service_fn};

use common::*;

#[test]
fn hyper_s_http1_client_keeps_one_connection() {
    let running = server().start(router()).unwrap();
    let addr = addr(&running);
    wakeful::block_on(async {
        let mut client = http1_client(addr).await;
        for number in 0..100 {
            let path = format!("/n/{number}");
            let response = client.send_request(request("GET", &path, "")).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, number.to_string());
        }
        let large = vec![7; 5 << 20];
        let response = client.send_request(request("POST", "/echo", large.clone())).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body == large);
        let missing = client.send_request(request("GET", "/missing", "")).await.unwrap();
        assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    });
    assert_eq!(running.counts().accepted(), 1);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn hyper_s_http2_client_runs_100_streams_at_once() {
    let running = server().start(router()).unwrap();
    let addr = addr(&running);
    wakeful::block_on(async {
        let client = http2_client(addr).await;
        let streams: Vec<_> = (0..100)
            .map(|number: u32| {
                let mut client = client.clone();
                wakeful::spawn(async move {
                    let path = format!("/n/{number}");
                    let response = client.send_request(request("GET", &path, "")).await.unwrap();
                    assert_eq!(response.version(), http::Version::HTTP_2);
                    let body = response.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(body, number.to_string());
                })
            })
            .collect();
        for stream in streams {
            stream.await.unwrap();
        }
        let large = vec![7; 5 << 20];
        let mut client = client;
        let response = client.send_request(request("POST", "/echo", large.clone())).await.unwrap();
        assert!(response.into_body().collect().await.unwrap().to_bytes() == large);
    });
    assert_eq!(running.counts().accepted(), 1);
    running.shutdown(GUARD).unwrap();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let running = server().start(router()).unwrap();
    let mut stream = raw(&running);
    let mut requests: String =
        (0..10).map(|n| format!("GET /n/{n} HTTP/1.1\r\nhost: x\r\n\r\n")).collect();
    requests += "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(requests.as_bytes()).unwrap();
    let text = read_all(stream);
    let bodies: Vec<_> = text
        .split("HTTP/1.1 200 OK")
        .skip(1)
        .map(|response| response.rsplit("\r\n\r\n").next().unwrap())
        .collect();
    let expected: Vec<_> = (0..10).map(|n| n.to_string()).chain(["hello".to_owned()]).collect();
    assert_eq!(bodies, expected);
}

/// Its end comes without a wake: by the time of the next poll, as that of a deadline may.
struct EndsByTheClock {
    polls: u32,
    wakes: wakeful::time::Sleep,
}

impl EndsByTheClock {
    fn new() -> Self {
        Self { polls: 0, wakes: wakeful::time::sleep(100 * GUARD) }
    }
}

impl http_body::Body for EndsByTheClock {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.polls += 1;
        match self.polls {
            1 => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"body"))))),
            2 => Pin::new(&mut self.wakes).poll(cx).map(|()| None),
            _ => Poll::Ready(None),
        }
    }
}

#[test]
fn pipelined_requests_are_answered_after_a_body_that_ends_without_a_wake() {
    let service = || {
        service_fn(|_: Request<RequestBody>| {
            ready(Ok::<_, Infallible>(Response::new(EndsByTheClock::new())))
        })
    };
    let running = server().start_with(service).unwrap();
    let mut stream = raw(&running);
    let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let last = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(format!("{request}{request}{last}").as_bytes()).unwrap();
    let text = read_all(stream);
    assert_eq!(text.matches("\r\n4\r\nbody\r\n0\r\n\r\n").count(), 3, "{text}");
    running.shutdown(GUARD).unwrap();
}

#[test]
fn a_header_may_come_byte_by_byte_and_the_http2_preface_too() {
    let running = server().start(router()).unwrap();
    let mut stream = raw(&running);
    stream.set_nodelay(true).unwrap();
    for byte in b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    assert!(read_all(stream).ends_with("hello"));

    let mut stream = raw(&running);
    stream.set_nodelay(true).unwrap();
    // The preface and an empty SETTINGS frame.
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], 4, "the server's SETTINGS");
}

#[test]
fn a_slow_header_and_a_silent_client_are_closed_and_disturb_nobody() {
    let running = server()
        .limits(Limits::new().header_timeout(Duration::from_millis(100)))
        .start(router())
        .unwrap();
    let silent = raw(&running);
    let mut slow = raw(&running);
    slow.write_all(b"GET / HTTP/1.1\r\nhost:").unwrap();
    let mut half_preface = raw(&running);
    half_preface.write_all(b"PRI * HT").unwrap();
    for _ in 0..20 {
        is_served(&running);
    }
    for stream in [silent, slow, half_preface] {
        // Closed by the server; hyper answers the slow one with 408 or with nothing.
        assert!(!read_all(stream).contains("200 OK"));
    }
    is_served(&running);
}

#[test]
fn a_response_says_so_where_a_body_that_nobody_reads_ends_the_connection() {
    let running = server().start(router()).unwrap();
    let bodies = [
        "content-length: 300000\r\n\r\nits beginning",
        "transfer-encoding: chunked\r\n\r\n5\r\nchunk\r\n",
        "content-length: 5\r\n\r\n",
        "content-length: 5\r\nexpect: 100-continue\r\n\r\n",
    ];
    for path in ["/", "/missing"] {
        for body in bodies {
            let mut stream = raw(&running);
            write!(stream, "POST {path} HTTP/1.1\r\nhost: x\r\n{body}").unwrap();
            let text = read_all(stream);
            assert!(text.starts_with("HTTP/1.1 40"), "{text}");
            assert!(text.contains("connection: close\r\n"), "{path} {body:?} {text}");
        }
    }
}

#[test]
fn a_body_that_nobody_reads_and_that_has_come_costs_no_connection() {
    let running = server().start(router()).unwrap();
    let mut stream = raw(&running);
    let unread = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nwhole".repeat(3);
    let last = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all((unread + last).as_bytes()).unwrap();
    let text = read_all(stream);
    assert_eq!(text.matches("HTTP/1.1 405").count(), 3, "{text}");
    assert_eq!(text.matches("connection: close").count(), 1, "{text}");
    assert!(text.ends_with("hello"), "{text}");
}

#[test]
fn a_half_closed_client_gets_its_answer() {
    let running = server().start(router()).unwrap();
    let mut stream = raw(&running);
    stream.write_all(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(read_all(stream).ends_with("slow"));
}

/// hyper reads nothing while it serves a request, and there is nothing to be written.
#[test]
fn a_client_that_is_gone_while_its_response_is_silent_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let addr = format!("unix:{}", path.display());
    let events =
        || async { Body::from_stream(futures_lite::stream::pending::<io::Result<Bytes>>()) };
    let app = router().route("/events", get(events));
    let no_limits = Limits::new().body_timeout(None).request_timeout(None).min_rate(None);
    for limits in [Limits::default(), no_limits] {
        let server = server().limits(limits).also_bind(addr.as_str());
        let running = server.unwrap().start(app.clone()).unwrap();
        for target in ["/never", "/events"] {
            let request = format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n");
            let mut reset = raw(&running);
            reset.write_all(request.as_bytes()).unwrap();
            let mut closed = UnixStream::connect(&path).unwrap();
            closed.write_all(request.as_bytes()).unwrap();
            // This one waits on.
            let mut half_closed = raw(&running);
            half_closed.write_all(request.as_bytes()).unwrap();
            half_closed.shutdown(Shutdown::Write).unwrap();
            until("they are in flight", || running.http_counts().in_flight() == 3);
            socket2::SockRef::from(&reset).set_linger(Some(Duration::ZERO)).unwrap();
            drop((reset, closed));
            until("two are gone", || running.http_counts().in_flight() == 1);
            socket2::SockRef::from(&half_closed).set_linger(Some(Duration::ZERO)).unwrap();
            drop(half_closed);
            until("all are gone", || running.counts().open() == 0);
        }
    }
}

#[test]
fn a_reset_in_mid_body_ends_that_connection_only() {
    let running = server().start(router()).unwrap();
    for _ in 0..20 {
        let mut stream = raw(&running);
        stream
            .write_all(
                b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\nbeginning",
            )
            .unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        drop(stream);
    }
    is_served(&running);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0, "nothing of them is left");
}

#[test]
fn an_oversized_header_is_431_and_a_malformed_one_400() {
    let running = server().limits(Limits::new().max_header_size(8 * 1024)).start(router()).unwrap();
    let mut stream = raw(&running);
    let header = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    // The server may close before it has read all.
    let _ = stream.write_all(header.as_bytes());
    let text = read_all(stream);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 431"), "{text}");

    let mut stream = raw(&running);
    let many: String = (0..200).map(|n| format!("h{n}: v\r\n")).collect();
    stream.write_all(format!("GET / HTTP/1.1\r\nhost: x\r\n{many}\r\n").as_bytes()).unwrap();
    assert!(read_all(stream).starts_with("HTTP/1.1 431"));

    let mut stream = raw(&running);
    stream.write_all(b"this is not http\r\n\r\n").unwrap();
    assert!(read_all(stream).starts_with("HTTP/1.1 400"));
    is_served(&running);
}

#[test]
fn beyond_the_limit_of_connections_the_next_one_waits() {
    let running = server().limits(Limits::new().max_connections(2)).start(router()).unwrap();
    let talk = |stream: &mut StdTcpStream| {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut buf = [0; 1024];
        let read = stream.read(&mut buf).unwrap();
        assert!(String::from_utf8_lossy(&buf[..read]).starts_with("HTTP/1.1 200"));
    };
    let (mut first, mut second) = (raw(&running), raw(&running));
    talk(&mut first);
    talk(&mut second);
    let mut third = raw(&running);
    third.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    third.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let waits = third.read(&mut [0; 1]).unwrap_err();
    assert!(matches!(waits.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    assert_eq!(running.counts().open(), 2);
    drop(first);
    third.set_read_timeout(Some(GUARD)).unwrap();
    assert!(read_all(third).ends_with("hello"));
    talk(&mut second);
}

#[test]
fn a_service_need_not_be_send() {
    let running = server()
        .start_with(|| {
            let served = Rc::new(Cell::new(0));
            wakeful_http::service_fn(move |_request| {
                let served = served.clone();
                async move {
                    served.set(served.get() + 1);
                    let body = Full::new(Bytes::from(served.get().to_string()));
                    Ok::<_, Infallible>(http::Response::new(body))
                }
            })
        })
        .unwrap();
    let addr = addr(&running);
    wakeful::block_on(async {
        let mut client = http1_client(addr).await;
        for number in 1..=3 {
            let response = client.send_request(request("GET", "/", "")).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, number.to_string());
        }
    });
}

#[test]
fn a_unix_socket_serves_and_its_file_goes_with_the_server() {
    let path = std::env::temp_dir().join(format!("wakeful-http-{}.sock", std::process::id()));
    let text = format!("unix:{}", path.display());
    let running = Server::bind(text.as_str()).unwrap().start(router()).unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("hello"));
    running.shutdown(GUARD).unwrap();
    assert!(!path.exists());
}

#[test]
fn many_connections_over_several_loops_are_all_answered() {
    let running = server().start(router()).unwrap();
    let addr = addr(&running);
    wakeful::block_on(async {
        let clients: Vec<_> = (0..200)
            .map(|number: u32| {
                wakeful::spawn(async move {
                    let mut client = http1_client(addr).await;
                    for _ in 0..5 {
                        let path = format!("/n/{number}");
                        let response = client.send_request(request("GET", &path, "")).await;
                        let body = response.unwrap().into_body().collect().await.unwrap();
                        assert_eq!(body.to_bytes(), number.to_string());
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
    assert_eq!(running.counts().accepted(), 200);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

/// As of [`std::net::TcpListener::bind`].
#[test]
fn a_server_is_bound_to_the_first_address_of_a_name_that_can_be_had() {
    let bound = |server: Server| server.local_addrs().next().unwrap().to_string();
    let named = bound(Server::bind("localhost:0").unwrap());
    let by_std = std::net::TcpListener::bind("localhost:0").unwrap().local_addr().unwrap();
    assert_eq!(named.rsplit_once(':').unwrap().0, by_std.to_string().rsplit_once(':').unwrap().0);
    assert!(!named.ends_with(":0"), "{named}");

    // TEST-NET-1: no host has it.
    let occupier = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = occupier.local_addr().unwrap();
    let (foreign, free) = (([192, 0, 2, 1], 0).into(), ([127, 0, 0, 2], 0).into());
    let second = bound(Server::bind([foreign, free, taken]).unwrap());
    assert!(second.starts_with("127.0.0.2:"), "{second}");
    let last = Server::bind([foreign, taken]).unwrap_err();
    assert_eq!(last.kind(), ErrorKind::AddrInUse);
    assert!(last.to_string().contains(&format!("cannot listen on {taken}")), "{last}");

    match std::net::TcpListener::bind("[::1]:0") {
        Ok(_) => assert!(bound(Server::bind("[::1]:0").unwrap()).starts_with("[::1]:")),
        Err(error) => eprintln!("skipped: IPv6: {error}"),
    }
    let unknown = Server::bind("nobody.invalid:80").unwrap_err().to_string();
    assert!(unknown.contains("nobody.invalid:80"), "{unknown}");
}

#[test]
fn an_empty_body_and_a_bad_address() {
    let running = server().start(router()).unwrap();
    let addr = addr(&running);
    wakeful::block_on(async {
        let stream = TcpStream::connect(addr).await.unwrap();
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        wakeful::spawn(connection).detach();
        let request = Request::post("/echo").header("host", "x").body(Empty::<Bytes>::new());
        let response = sender.send_request(request.unwrap()).await.unwrap();
        assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    });
    assert_eq!(Server::bind("nowhere").unwrap_err().kind(), ErrorKind::InvalidInput);
    let taken = Server::bind(addr).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
}
