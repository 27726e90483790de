//! WebSockets of clients that speak HTTP/2 (RFC 8441), to backends of HTTP/1.1.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;

use async_tungstenite::tungstenite::handshake::derive_accept_key;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2;
use hyper::rt::{Read as _, ReadBuf, Write as _};
use hyper::upgrade::Upgraded;
use wakeful::io::{LoopExecutor, LoopTimer};
use wakeful::net::TcpStream;
use wakeful::time::timeout;
use wakeful_http::client::HttpVersion;
use wakeful_services::DrainPlan;
use wakeful_services::proxy::headers::Upgrades;

use crate::common::*;

/// Asks for `protocol` by an extended CONNECT; `None`: by a plain one.
async fn connect_to(addr: SocketAddr, protocol: Option<&'static str>) -> Response<Incoming> {
    let stream = TcpStream::connect(addr).await.unwrap();
    let mut builder = http2::Builder::new(LoopExecutor);
    let (mut sender, connection) = builder.timer(LoopTimer).handshake(stream).await.unwrap();
    wakeful::spawn(connection).detach();
    // The proxy's SETTINGS have to come first: they allow it.
    let first = Request::options("http://example.org/").header("max-forwards", 0);
    let first = sender.send_request(first.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    assert_eq!(first.status(), StatusCode::NO_CONTENT);
    let mut request = Request::connect("http://example.org/chat").body(Empty::new()).unwrap();
    request.headers_mut().insert("sec-websocket-version", "13".parse().unwrap());
    request.headers_mut().insert("sec-websocket-key", "bXkgb3duLCB3aGljaCBnb2Vz".parse().unwrap());
    match protocol {
        Some(name) => {
            request.extensions_mut().insert(hyper::ext::Protocol::from_static(name));
        }
        None => *request.uri_mut() = "example.org:80".parse().unwrap(),
    }
    sender.send_request(request).await.unwrap()
}

async fn say(stream: &mut Upgraded, mut text: &[u8]) {
    while !text.is_empty() {
        let written = poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, text)).await.unwrap();
        text = &text[written..];
    }
}

/// Up to `length` bytes, or the end.
async fn hear(stream: &mut Upgraded, length: usize) -> Vec<u8> {
    let mut text = Vec::new();
    while text.len() < length {
        let mut space = [0; 1024];
        let mut buf = ReadBuf::new(&mut space);
        poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, buf.unfilled())).await.unwrap();
        if buf.filled().is_empty() {
            break;
        }
        text.extend_from_slice(buf.filled());
    }
    text
}

fn on_a_loop(test: impl Future<Output = ()>) {
    wakeful::block_on(timeout(GUARD, test)).expect("a hang is a failure");
}

/// The value of a field of `head`.
fn field<'a>(head: &'a str, name: &str) -> &'a str {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).expect(name).1
}

fn switch(accept: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n\r\n"
    )
}

#[test]
fn an_extended_connect_becomes_an_upgrade_of_http1() {
    let backend = Backend::start(|this, stream| {
        let head = this.read(stream).unwrap();
        let accept = derive_accept_key(field(&head, "sec-websocket-key").as_bytes());
        stream.write_all(switch(&accept).as_bytes()).unwrap();
        let mut buf = [0; 5];
        stream.read_exact(&mut buf).unwrap();
        stream.write_all(&buf).unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        stream.write_all(format!("behind the end: {rest}").as_bytes()).unwrap();
    });
    let proxy = proxy(&[backend.addr], |settings| settings);
    on_a_loop(async {
        let response = connect_to(addr(&proxy), Some("websocket")).await;
        assert_eq!(response.status(), StatusCode::OK);
        for name in ["connection", "upgrade", "sec-websocket-accept"] {
            assert!(!response.headers().contains_key(name), "{name}");
        }
        let mut stream = hyper::upgrade::on(response).await.unwrap();
        say(&mut stream, b"hello").await;
        assert_eq!(hear(&mut stream, 5).await, b"hello");
        say(&mut stream, b"last").await;
        poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await.unwrap();
        assert_eq!(hear(&mut stream, 100).await, b"behind the end: last");
    });
    let head = &backend.requests()[0];
    assert!(head.starts_with("GET /chat HTTP/1.1\r\n"), "{head}");
    for (name, value) in [
        ("host", "example.org"),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
    ] {
        assert_eq!(field(head, name), value, "{head}");
    }
    assert!(field(head, "via").starts_with("2.0 wakeful-"), "{head}");
    assert_eq!(head.matches("sec-websocket-key").count(), 1);
    assert!(!head.contains("bXkgb3duLCB3aGljaCBnb2Vz"), "{head}");
    until("it is over", || proxy.counts().tunnels() == 0);
}

#[test]
fn a_websocket_of_http2_is_told_when_the_proxy_drains() {
    let backend = Backend::start(|this, stream| {
        let head = this.read(stream).unwrap();
        let accept = derive_accept_key(field(&head, "sec-websocket-key").as_bytes());
        stream.write_all(switch(&accept).as_bytes()).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        this.note(&format!("{rest:x?}"));
    });
    let proxy = proxy(&[backend.addr], |settings| settings);
    on_a_loop(async {
        let response = connect_to(addr(&proxy), Some("websocket")).await;
        let mut stream = hyper::upgrade::on(response).await.unwrap();
        let draining =
            std::thread::spawn(move || proxy.drain(DrainPlan::new().grace(GUARD)).unwrap());
        assert_eq!(hear(&mut stream, 4).await, b"\x88\x02\x03\xe9");
        say(&mut stream, b"\x88\x82\0\0\0\0\x03\xe9").await;
        poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await.unwrap();
        assert_eq!(hear(&mut stream, 1).await, b"");
        drop(stream);
        let aborted = wakeful::task::spawn_blocking(move || draining.join().unwrap()).await;
        assert_eq!(aborted.unwrap(), 0, "nothing had to be aborted");
    });
    until("the backend is alone", || backend.is_alone());
    assert_eq!(backend.requests()[1], "[88, 82, 0, 0, 0, 0, 3, e9]");
}

/// 200 to a CONNECT would open a tunnel.
#[test]
fn only_a_101_with_the_right_key_opens_a_tunnel() {
    for (says, expected, failures) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno".to_owned(), 502, 0),
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), 502, 0),
        (switch("bm8="), 502, 1),
        ("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno".to_owned(), 403, 0),
    ] {
        let backend = Backend::start(move |this, stream| {
            while this.read(stream).is_some() {
                let _ = stream.write_all(says.as_bytes());
            }
        });
        let proxy = proxy(&[backend.addr], |settings| settings);
        on_a_loop(async {
            let response = connect_to(addr(&proxy), Some("websocket")).await;
            assert_eq!(response.status(), expected);
        });
        assert_eq!((backend.requests().len(), proxy.counts().tunnels()), (1, 0));
        // A client can ask any resource for a WebSocket, and have no backend ejected by it.
        assert_eq!(proxy.counts().backends()[0].failures(), failures);
        until("the backend is alone", || backend.is_alone());
    }
}

#[test]
fn no_other_tunnel_is_opened() {
    for (protocol, upgrades, version) in [
        (None, Upgrades::Any, HttpVersion::Http1),
        (Some("connect-udp"), Upgrades::Any, HttpVersion::Http1),
        (Some("websocket"), Upgrades::Off, HttpVersion::Http1),
        (Some("websocket"), Upgrades::WebSocket, HttpVersion::Http2),
    ] {
        let backend = Backend::mirror();
        let proxy = proxy(&[backend.addr], |settings| settings.upgrades(upgrades).version(version));
        on_a_loop(async {
            let response = connect_to(addr(&proxy), protocol).await;
            assert_eq!(response.status(), StatusCode::NOT_IMPLEMENTED);
        });
        assert_eq!(backend.connections(), 0);
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_HEADERS: u8 = 4;
const CANCEL: u32 = 8;

/// A client that writes its frames itself, because hyper hides what a reset is.
struct Frames(std::net::TcpStream);

impl Frames {
    /// Has opened a WebSocket, as stream 1.
    fn open(addr: SocketAddr) -> Self {
        let mut this = Self(connect(addr));
        this.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        this.send(4, 0, 0, &[]);
        let fields = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":path", "/chat"),
            (":authority", "example.org"),
            ("sec-websocket-version", "13"),
        ];
        let literal = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let head = fields.map(|(name, value)| [vec![0], literal(name), literal(value)].concat());
        this.send(HEADERS, END_HEADERS, 1, &head.concat());
        // The status is 200.
        assert_eq!(this.wait_for(HEADERS).0[0], 0x88);
        this
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
        let length = u8::try_from(payload.len()).unwrap();
        let head = [0, 0, length, kind, flags, 0, 0, 0, stream];
        self.0.write_all(&[&head, payload].concat()).unwrap();
    }

    /// The payload of the next frame of this kind, and the kinds of those before it.
    fn wait_for(&mut self, kind: u8) -> (Vec<u8>, Vec<u8>) {
        let mut before = Vec::new();
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.0.read_exact(&mut payload).unwrap();
            if head[3] == kind {
                return (payload, before);
            }
            before.push(head[3]);
        }
    }
}

/// Agrees, and tells how the other side ends.
fn listening() -> Backend {
    Backend::start(|this, stream| {
        let head = this.read(stream).unwrap();
        let accept = derive_accept_key(field(&head, "sec-websocket-key").as_bytes());
        stream.write_all(switch(&accept).as_bytes()).unwrap();
        let mut rest = Vec::new();
        let end = stream.read_to_end(&mut rest).map(drop).map_err(|error| error.kind());
        this.note(&format!("{} {end:?}", String::from_utf8_lossy(&rest)));
    })
}

/// A client that cancels does not read on, so nothing is left to wait for.
#[test]
fn a_websocket_of_http2_that_is_cancelled_leaves_no_connection_to_its_backend() {
    let backend = listening();
    let proxy = proxy(&[backend.addr], |settings| settings.upstream_timeout(10 * GUARD));
    let mut client = Frames::open(addr(&proxy));
    client.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes());
    until("the backend is alone", || backend.is_alone());
    assert_eq!(backend.requests()[1], " Err(ConnectionReset)");
    until("it is over", || proxy.counts().tunnels() == 0);
}

#[test]
fn a_websocket_of_http2_that_is_given_up_is_reset() {
    let backend = listening();
    let limit = std::time::Duration::from_millis(200);
    let proxy = proxy(&[backend.addr], |settings| settings.tunnel_timeout(limit));
    let mut client = Frames::open(addr(&proxy));
    let (code, before) = client.wait_for(RST_STREAM);
    assert_eq!(code, CANCEL.to_be_bytes());
    assert!(!before.contains(&DATA), "no end was announced: {before:?}");
    until("the backend is alone", || backend.is_alone());
    assert_eq!(backend.requests()[1], " Err(ConnectionReset)");
}
