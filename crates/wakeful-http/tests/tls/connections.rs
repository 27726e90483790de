//! HTTP over TLS, from the first request to the end of the connection.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream as StdTcpStream;
use std::pin::Pin;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{MethodRouter, get};
use futures_lite::{AsyncWriteExt, stream};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::rt::Write as _;
use wakeful::io::{LoopExecutor, LoopTimer};
use wakeful::net::{ListenAddr, TcpStream, UnixStream};
use wakeful::time::timeout;
use wakeful_http::tls::{Alpn, ClientTls};
use wakeful_http::upgrade::{self, Upgraded};
use wakeful_http::{AmbiguousLength, Limits, Refusal, Running, Server};

use crate::common::{
    GUARD, addr, is_served, raw as plain, read_all, request, router, server, until,
};
use crate::material::{Directory, Site};
use crate::raw::{CLOSING_GET, GET, ask, config, connect, read_until, rest, shake};

async fn http1_client(
    tls: &ClientTls,
    addr: std::net::SocketAddr,
) -> http1::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(addr).await.unwrap();
    let stream = tls.connect_with(stream, "localhost", &[Alpn::Http1]).await.unwrap();
    assert_eq!(stream.alpn(), Some(Alpn::Http1));
    let (sender, connection) = http1::handshake(stream).await.unwrap();
    wakeful::spawn(connection).detach();
    sender
}

async fn http2_client(
    tls: &ClientTls,
    addr: std::net::SocketAddr,
) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(addr).await.unwrap();
    let stream = tls.connect(stream, "localhost").await.unwrap();
    assert_eq!(stream.alpn(), Some(Alpn::Http2));
    let builder = http2::Builder::new(LoopExecutor);
    let (sender, connection) = builder.clone().timer(LoopTimer).handshake(stream).await.unwrap();
    wakeful::spawn(connection).detach();
    sender
}

/// Returns a body of several records, no two of them alike.
fn large() -> Vec<u8> {
    (0..5_u32 << 18).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

#[test]
fn hyper_s_http1_client_gets_and_sends_large_bodies() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let (addr, tls) = (addr(&running), site.client().build().unwrap());
    wakeful::block_on(async {
        let mut client = http1_client(&tls, addr).await;
        for number in 0..100 {
            let path = format!("/n/{number}");
            let response = client.send_request(request("GET", &path, "")).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, number.to_string());
        }
        let response = client.send_request(request("POST", "/echo", large())).await.unwrap();
        assert!(response.into_body().collect().await.unwrap().to_bytes() == large());
    });
    assert_eq!(running.counts().accepted(), 1);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn hyper_s_http2_client_runs_100_streams_and_large_bodies() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let (addr, tls) = (addr(&running), site.client().build().unwrap());
    wakeful::block_on(async {
        let client = http2_client(&tls, addr).await;
        let streams: Vec<_> = (0..100)
            .map(|number: u32| {
                let mut client = client.clone();
                wakeful::spawn(async move {
                    let path = format!("/n/{number}");
                    let response = client.send_request(request("GET", &path, "")).await.unwrap();
                    let body = response.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(body, number.to_string());
                })
            })
            .collect();
        let large_ones: Vec<_> = (0..4)
            .map(|_| {
                let mut client = client.clone();
                wakeful::spawn(async move {
                    let sent = client.send_request(request("POST", "/echo", large())).await;
                    let body = sent.unwrap().into_body().collect().await.unwrap().to_bytes();
                    assert!(body == large());
                })
            })
            .collect();
        for stream in streams.into_iter().chain(large_ones) {
            stream.await.unwrap();
        }
    });
    assert_eq!(running.counts().accepted(), 1);
    running.shutdown(GUARD).unwrap();
}

/// They come in one read with the end, and are more than rustls takes at once.
#[test]
fn bytes_after_the_end_of_what_a_client_says_hold_up_no_other_connection() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    for before in [&b""[..], GET] {
        let mut client = connect(addr(&running), config(&site.ca()));
        shake(&mut client).unwrap();
        client.conn.writer().write_all(before).unwrap();
        client.conn.send_close_notify();
        let mut records = Vec::new();
        client.conn.write_tls(&mut records).unwrap();
        records.resize(records.len() + 10_000, 0);
        client.sock.write_all(&records).unwrap();
        ask(&mut connect(addr(&running), config(&site.ca())));
        let answer = rest(&mut client).unwrap();
        assert_eq!(answer.contains("hello"), !before.is_empty(), "{answer}");
    }
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

/// The socket is empty while most of them wait decrypted.
#[test]
fn requests_that_came_in_one_record_are_all_answered() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let mut client = connect(addr(&running), config(&site.ca()));
    let mut requests = GET.repeat(300);
    requests.extend_from_slice(CLOSING_GET);
    assert!(requests.len() < 16 * 1024, "one record");
    client.write_all(&requests).unwrap();
    let answers = rest(&mut client).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 301);
}

#[test]
fn two_lengths_are_refused_by_tls_too_and_large_bodies_are_read_on() {
    let site = Site::new();
    let limits = Limits::new().ambiguous_length(AmbiguousLength::Refuse);
    let running = server().limits(limits).tls(site.tls()).start(router()).unwrap();
    let mut client = connect(addr(&running), config(&site.ca()));
    let both = "content-length: 5\r\ntransfer-encoding: chunked\r\n";
    let head = |fields: &str| format!("POST /echo HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n");
    let body = format!("{}0\r\n\r\n", head(both)).repeat(5000);
    let length = body.len();
    let honest = format!("{}{body}", head(&format!("content-length: {length}\r\n")));
    client.write_all(honest.as_bytes()).unwrap();
    client.write_all(head(both).as_bytes()).unwrap();
    let answers = rest(&mut client).unwrap();
    assert!(answers.starts_with("HTTP/1.1 200 OK\r\n"));
    let (_, behind) = answers.split_once(&body).expect("all of the body");
    assert!(behind.contains("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n"), "{behind:?}");
    assert_eq!(running.http_counts().refused(Refusal::AmbiguousLength), 1);
}

/// More than the socket and both sides' buffers take: the server has to wait for the client, and
/// continues.
#[test]
fn a_client_that_reads_late_gets_all_of_a_large_response() {
    let site = Site::new();
    let sent = large();
    let body = sent.clone();
    let app = router().route("/large", axum::routing::get(async move || body));
    let running = server().tls(site.tls()).start(app).unwrap();
    let mut client = connect(addr(&running), config(&site.ca()));
    client.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    // Others are served meanwhile.
    for _ in 0..20 {
        ask(&mut connect(addr(&running), config(&site.ca())));
    }
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&sent));
}

#[test]
fn a_connection_that_ends_says_so() {
    let site = Site::new();
    let limits = Limits::new().header_timeout(Duration::from_millis(100));
    let running = server().tls(site.tls()).limits(limits).start(router());
    let running = running.unwrap();
    let mut client = connect(addr(&running), config(&site.ca()));
    client.write_all(CLOSING_GET).unwrap();
    assert!(rest(&mut client).unwrap().ends_with("hello"), "no `close_notify` is an error here");
    // A connection without a request is closed in time, and gets a `close_notify`, too.
    let mut silent = connect(addr(&running), config(&site.ca()));
    shake(&mut silent).unwrap();
    assert_eq!(rest(&mut silent).unwrap(), "");
}

const UPGRADE: &[u8] = b"GET /up HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";

/// A handler whose upgraded connections `end` uses, with what it drops at the end.
fn taken_up<F: Future<Output = ()> + 'static>(
    end: impl Fn(Upgraded) -> F + Clone + Send + Sync + 'static,
) -> MethodRouter {
    let upgraded = async move |mut request: axum::extract::Request| {
        let (upgrading, end) = (upgrade::on(&mut request), end.clone());
        wakeful::spawn(async move { end(upgrading.await.unwrap()).await }).detach();
        let response = http::Response::builder().status(101).header("connection", "upgrade");
        response.header("upgrade", "x").body(axum::body::Body::empty()).unwrap()
    };
    get(upgraded)
}

/// A server with such a handler.
fn upgrading<F: Future<Output = ()> + 'static>(
    site: &Site,
    end: impl Fn(Upgraded) -> F + Clone + Send + Sync + 'static,
) -> Running {
    server().tls(site.tls()).start(router().route("/up", taken_up(end))).unwrap()
}

#[test]
fn an_upgraded_connection_that_is_dropped_says_that_it_ends() {
    let site = Site::new();
    let running = upgrading(&site, |mut stream| async move {
        // It is neither flushed nor closed.
        stream.write_all(b"the rest").await.unwrap();
    });
    let mut client = connect(addr(&running), config(&site.ca()));
    client.write_all(UPGRADE).unwrap();
    assert!(rest(&mut client).unwrap().ends_with("\r\n\r\nthe rest"));

    // A panic has not said all that was to be said.
    let running = upgrading(&site, |stream| async move {
        let _dropped = stream;
        panic!("on purpose");
    });
    let mut client = connect(addr(&running), config(&site.ca()));
    client.write_all(UPGRADE).unwrap();
    assert_eq!(rest(&mut client).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

/// A protocol may end with its connection.
#[test]
fn an_upgraded_connection_that_is_aborted_is_cut_off() {
    let site = Site::new();
    let abort = |mut stream: Upgraded| async move {
        stream.write_all(b"the first half").await.unwrap();
        stream.flush().await.unwrap();
        futures_lite::AsyncReadExt::read_exact(&mut stream, &mut [0]).await.unwrap();
        stream.abort();
        let error = stream.write_all(b"x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
        // The user may keep it.
        std::future::pending::<()>().await;
    };
    let running = upgrading(&site, abort);
    let mut client = connect(addr(&running), config(&site.ca()));
    client.write_all(UPGRADE).unwrap();
    read_until(&mut client, b"the first half");
    client.write_all(b"!").unwrap();
    assert_eq!(rest(&mut client).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    until("it is closed", || running.counts().open() == 0);

    let running = server().start(router().route("/up", taken_up(abort))).unwrap();
    let mut client = plain(&running);
    client.write_all(UPGRADE).unwrap();
    read_until(&mut client, b"the first half");
    client.write_all(b"!").unwrap();
    let end = client.read_to_end(&mut Vec::new());
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    until("it is closed", || running.counts().open() == 0);
}

/// A request shows where it ends; another protocol may end with its connection.
#[test]
fn an_upgraded_connection_that_its_client_cuts_off_does_not_end_like_a_whole_one() {
    let site = Site::new();
    let (tell, told) = mpsc::channel();
    let running = upgrading(&site, move |mut stream| {
        let tell = tell.clone();
        async move {
            let mut all = Vec::new();
            let end = futures_lite::AsyncReadExt::read_to_end(&mut stream, &mut all).await;
            tell.send((all, end.map_err(|error| error.kind()))).unwrap();
        }
    });
    for (says_so, end) in [(true, Ok(3)), (false, Err(ErrorKind::UnexpectedEof))] {
        let mut client = connect(addr(&running), config(&site.ca()));
        client.write_all(UPGRADE).unwrap();
        read_until(&mut client, b"\r\n\r\n");
        client.write_all(b"all").unwrap();
        if says_so {
            client.conn.send_close_notify();
            client.flush().unwrap();
        }
        client.sock.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(told.recv_timeout(GUARD).unwrap(), (b"all".to_vec(), end));
    }
}

/// hyper's, on another thread than that of its loop.
#[test]
fn an_upgraded_connection_that_a_panic_drops_beside_its_loop_is_cut_off() {
    let site = Site::new();
    let upgraded = async |request: axum::extract::Request| {
        let panics = request.headers().contains_key("panics");
        let upgrading = hyper::upgrade::on(request);
        thread::spawn(move || {
            let mut io = futures_lite::future::block_on(upgrading).unwrap();
            let write = std::future::poll_fn(|cx| Pin::new(&mut io).poll_write(cx, b"the rest"));
            assert_eq!(futures_lite::future::block_on(write).unwrap(), 8);
            assert!(!panics, "on purpose");
        });
        let response = http::Response::builder().status(101).header("connection", "upgrade");
        response.header("upgrade", "x").body(Body::empty()).unwrap()
    };
    let app = router().route("/up", get(upgraded));
    let running = server().tokio().tls(site.tls()).start(app).unwrap();
    for panics in [false, true] {
        let mut client = connect(addr(&running), config(&site.ca()));
        let text = std::str::from_utf8(UPGRADE).unwrap();
        let header = if panics { "panics: x\r\n\r\n" } else { "\r\n" };
        let text = text.trim_end().to_owned() + "\r\n" + header;
        client.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let end = client.read_to_end(&mut answer).map_err(|error| error.kind());
        assert!(answer.ends_with(b"\r\n\r\nthe rest"));
        assert_eq!(end.is_err(), panics, "{end:?}");
    }
    until("they are closed", || running.counts().open() == 0);
}

#[test]
fn the_drop_of_an_upgraded_connection_waits_for_no_room_in_its_socket() {
    let site = Site::new();
    let running = upgrading(&site, |mut stream| async move {
        // Until the sockets hold no more.
        let fill = async { while stream.write_all(&[0; 64 << 10]).await.is_ok() {} };
        timeout(Duration::from_millis(200), fill).await.expect_err("nobody reads");
    });
    let mut full = connect(addr(&running), config(&site.ca()));
    full.write_all(UPGRADE).unwrap();
    until("it is dropped", || running.counts().open() == 0);
    // The stream is cut off, and the client is not told of an end.
    let end = full.read_to_end(&mut Vec::new());
    assert_eq!(end.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_kept_connection_that_is_idle_for_too_long_is_told_that_it_ends() {
    let site = Site::new();
    let limits = wakeful_http::Limits::new().idle_timeout(Duration::from_millis(100));
    let running = server().tls(site.tls()).limits(limits).start(router()).unwrap();
    let mut idle = connect(addr(&running), config(&site.ca()));
    ask(&mut idle);
    assert_eq!(rest(&mut idle).unwrap(), "");
}

#[test]
fn a_client_that_ends_its_side_gets_its_answer_whether_it_says_so_or_not() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    for says_so in [true, false] {
        let mut client = connect(addr(&running), config(&site.ca()));
        client.write_all(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        if says_so {
            client.conn.send_close_notify();
            client.flush().unwrap();
        }
        client.sock.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(rest(&mut client).unwrap().ends_with("slow"), "{says_so}");
    }
}

#[test]
fn a_request_that_is_cut_off_ends_that_connection_only() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    for linger in [None, Some(Duration::ZERO)] {
        let mut client = connect(addr(&running), config(&site.ca()));
        client
            .write_all(
                b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\nbeginning",
            )
            .unwrap();
        socket2::SockRef::from(&client.sock).set_linger(linger).unwrap();
        drop(client);
    }
    ask(&mut connect(addr(&running), config(&site.ca())));
    assert_eq!(running.shutdown(GUARD).unwrap(), 0, "nothing of them is left");
}

/// A record that was changed on its way.
#[test]
fn a_damaged_record_ends_the_connection() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let mut client = connect(addr(&running), config(&site.ca()));
    ask(&mut client);
    client.sock.write_all(b"\x17\x03\x03\x00\x20aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa").unwrap();
    let error = rest(&mut client).unwrap_err();
    let told = error.to_string();
    assert!(told.contains("BadRecordMac") || error.kind() == ErrorKind::ConnectionReset, "{told}");
    until("it is closed", || running.counts().open() == 0);
}

#[test]
fn plain_and_tls_are_served_side_by_side() {
    let site = Site::new();
    let running = Server::bind("127.0.0.1:0")
        .unwrap()
        .also_bind_tls("127.0.0.1:0", site.tls())
        .unwrap()
        .group(wakeful::LoopGroup::builder().loops(2))
        .start(router())
        .unwrap();
    is_served(&running);
    let ListenAddr::Tcp(secured) = running.local_addrs()[1] else { unreachable!() };
    ask(&mut connect(secured, config(&site.ca())));
    let mut lost = StdTcpStream::connect(secured).unwrap();
    lost.write_all(GET).unwrap();
    assert!(read_all(lost).starts_with("HTTP/1.1 400"));
    // A record that is no request.
    let mut lost = plain(&running);
    lost.write_all(b"\x16\x03\x01\x00\x01\x01\r\n\r\n").unwrap();
    assert!(read_all(lost).starts_with("HTTP/1.1 400"));
}

#[test]
fn a_unix_socket_speaks_tls() {
    let (site, directory) = (Site::new(), Directory::new());
    let path = directory.path("socket");
    let address = format!("unix:{}", path.display());
    let running = Server::bind_tls(address.as_str(), site.tls()).unwrap().start(router()).unwrap();
    let tls = site.client().build().unwrap();
    let body = wakeful::block_on(async {
        let stream = UnixStream::connect(&path).await.unwrap();
        let stream = tls.connect_with(stream, "localhost", &[]).await.unwrap();
        assert_eq!(stream.alpn(), None);
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        wakeful::spawn(connection).detach();
        let response = sender.send_request(request("GET", "/", "")).await.unwrap();
        response.into_body().collect().await.unwrap().to_bytes()
    });
    assert_eq!(body, "hello");
    running.shutdown(GUARD).unwrap();
}

#[test]
fn many_connections_over_several_loops_are_all_answered() {
    let site = Site::new();
    let tls = site.tls();
    let running = server().tls(tls.clone()).start(router()).unwrap();
    let addr = addr(&running);
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let client = site.client().build().unwrap();
            thread::spawn(move || {
                wakeful::block_on(async {
                    let clients: Vec<_> = (0..50)
                        .map(|number: u32| {
                            let tls = client.clone();
                            wakeful::spawn(async move {
                                let mut client = http1_client(&tls, addr).await;
                                for _ in 0..5 {
                                    let path = format!("/n/{number}");
                                    let sent = client.send_request(request("GET", &path, "")).await;
                                    let body = sent.unwrap().into_body().collect().await.unwrap();
                                    assert_eq!(body.to_bytes(), number.to_string());
                                }
                            })
                        })
                        .collect();
                    for client in clients {
                        client.await.unwrap();
                    }
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(tls.counts().handshakes(), 100);
    assert_eq!(running.shutdown(GUARD).unwrap(), 0);
}

#[test]
fn a_server_that_is_not_who_it_says_is_refused_by_the_client() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let addr = addr(&running);
    let refused = |tls: ClientTls, name: &'static str| {
        wakeful::block_on(async move {
            let stream = TcpStream::connect(addr).await.unwrap();
            tls.connect(stream, name).await.unwrap_err()
        })
    };
    let stranger = refused(ClientTls::builder().build().unwrap(), "localhost");
    assert!(stranger.to_string().contains("UnknownIssuer"), "{stranger}");
    let trusting = || site.client().build().unwrap();
    let name = refused(trusting(), "elsewhere.example");
    assert!(name.to_string().contains("not valid for name"), "{name}");
    let ip = refused(trusting(), "[::1]");
    assert!(ip.to_string().contains("not valid for name"), "{ip}");
    let none = refused(trusting(), "no name");
    assert_eq!(none.kind(), ErrorKind::InvalidInput);
    assert!(none.to_string().contains("no name"), "{none}");
}

/// A response that ends with its connection is complete only if the server says so.
#[test]
fn a_response_that_is_cut_off_is_an_error_for_the_client() {
    let site = Site::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let config = site.rustls_server();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut session = rustls::ServerConnection::new(config).unwrap();
        let mut server = rustls::Stream::new(&mut session, &mut stream);
        let mut request = [0; 1024];
        assert!(server.read(&mut request).unwrap() > 0);
        server.write_all(b"HTTP/1.1 200 OK\r\n\r\nthe first half").unwrap();
        server.flush().unwrap();
        // And no `close_notify`.
    });
    let tls = site.client().build().unwrap();
    let body = wakeful::block_on(async {
        let stream = TcpStream::connect(addr).await.unwrap();
        let stream = tls.connect_with(stream, "localhost", &[]).await.unwrap();
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        wakeful::spawn(connection).detach();
        let response = sender.send_request(request("GET", "/", "")).await.unwrap();
        response.into_body().collect().await
    });
    assert!(body.is_err());
    server.join().unwrap();
}

/// A client of HTTP/1.0 knows its end by the close alone.
#[test]
fn a_response_that_fails_ends_without_a_word_to_a_client_of_http_1_0() {
    let site = Site::new();
    let body = || {
        let failure = std::io::Error::other("on purpose");
        Body::from_stream(stream::iter([Ok(Bytes::from("the first half")), Err(failure)]))
    };
    let app = Router::new().route("/", get(move || async move { body() }));
    let running = server().tls(site.tls()).start(app).unwrap();
    for (version, says_so) in [("1.1", true), ("1.0", false)] {
        let mut client = connect(addr(&running), config(&site.ca()));
        write!(client, "GET / HTTP/{version}\r\nhost: localhost\r\n\r\n").unwrap();
        let answer = rest(&mut client);
        match says_so {
            true => assert!(!answer.unwrap().ends_with("0\r\n\r\n"), "its chunks have no end"),
            false => assert_eq!(answer.unwrap_err().kind(), ErrorKind::UnexpectedEof),
        }
    }
}

#[test]
fn a_kept_connection_is_asked_again_and_again() {
    let site = Site::new();
    let running = server().tls(site.tls()).start(router()).unwrap();
    let mut client = connect(addr(&running), config(&site.ca()));
    for _ in 0..100 {
        ask(&mut client);
    }
    // In pieces: a header over several records.
    for byte in CLOSING_GET {
        client.write_all(&[*byte]).unwrap();
    }
    assert!(read_until(&mut client, b"hello").starts_with(b"HTTP/1.1 200"));
    assert_eq!(running.counts().accepted(), 1);
}
