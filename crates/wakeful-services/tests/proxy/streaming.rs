//! Bodies that pause: what has come of a response is its client's at once, whatever it is and
//! whoever speaks which HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Request;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use wakeful::LoopGroup;
use wakeful::time::timeout;
use wakeful_http::client::{Client, Host, HttpVersion, Target};
use wakeful_http::{BoxError, RequestBody, Server, service_fn};

use crate::common::*;
use crate::upgrades::head;

type Framed = fn(&str) -> String;

/// A backend that answers with `head`, and then with each text that the sender gives, framed by
/// `frame`.
fn told(head: &'static str, frame: Framed) -> (Backend, Sender<&'static str>) {
    let (next, nexts) = channel();
    let nexts: Arc<Mutex<Receiver<&'static str>>> = Arc::new(Mutex::new(nexts));
    let backend = Backend::start(move |this, stream| {
        this.read(stream);
        stream.write_all(head.as_bytes()).unwrap();
        while let Ok(text) = nexts.lock().unwrap().recv() {
            stream.write_all(frame(text).as_bytes()).unwrap();
        }
    });
    (backend, next)
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn read_until(stream: &mut TcpStream, text: &mut String, end: &str) {
    while !text.ends_with(end) {
        let mut buf = [0; 1000];
        let read = stream.read(&mut buf).unwrap();
        assert!(read > 0, "{text}");
        text.push_str(std::str::from_utf8(&buf[..read]).unwrap());
    }
}

const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// The next event is sent when the one before has come, so one that is held back would hang.
#[test]
fn each_piece_of_a_response_goes_on_before_the_next_one_comes() {
    let plain = |text: &str| text.to_owned();
    let cases: [(&str, Framed); 4] = [
        (EVENTS, chunk),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n",
            chunk,
        ),
        // A download that pauses, and a body that ends with its connection.
        ("HTTP/1.1 200 OK\r\ncontent-type: application/zip\r\ncontent-length: 1000\r\n\r\n", plain),
        ("HTTP/1.0 200 OK\r\n\r\n", plain),
    ];
    for (head, frame) in cases {
        let (backend, next) = told(head, frame);
        let proxy = proxy(&[backend.addr], |settings| settings);
        let mut stream = connect(addr(&proxy));
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        // The head comes before there is anything else.
        let mut text = String::new();
        read_until(&mut stream, &mut text, "\r\n\r\n");
        let is_chunked = text.contains("chunked");
        for event in ["data: 1\n\n", "data: 2\n\n", "x", "data: 3\n\n"] {
            next.send(event).unwrap();
            let comes = if is_chunked { chunk(event) } else { event.to_owned() };
            text.clear();
            read_until(&mut stream, &mut text, &comes);
            assert_eq!(text, comes, "{head}");
        }
    }
}

/// What a client has to hear of each word that it has sent, before it sends the next one.
const WORDS: [&str; 3] = ["one", "two", "three"];

/// A request whose body comes as the sender says.
fn spoken() -> (async_channel::Sender<Bytes>, impl wakeful_http::client::OutgoingBody) {
    let (say, said) = async_channel::unbounded::<Bytes>();
    let frames = futures_util::stream::unfold(said, |said| async {
        let bytes = said.recv().await.ok()?;
        Some((Ok::<_, BoxError>(Frame::data(bytes)), said))
    });
    (say, StreamBody::new(Box::pin(frames)))
}

/// A server of HTTP/1.1 and HTTP/2 that says back each piece of a request's body as it comes.
fn echo() -> (wakeful_http::Running, SocketAddr) {
    let server = Server::bind("127.0.0.1:0").unwrap().group(LoopGroup::builder().loops(1));
    let running = server
        .start_per_connection(|| {
            |_| {
                service_fn(async |request: Request<RequestBody>| {
                    Ok::<_, std::convert::Infallible>(http::Response::new(request.into_body()))
                })
            }
        })
        .unwrap();
    let addr = tcp(&running.local_addrs()[0]);
    (running, addr)
}

fn host<B: wakeful_http::client::OutgoingBody>(addr: SocketAddr, version: HttpVersion) -> Host<B> {
    Client::new().host(&Target::from(addr).version(version))
}

#[test]
fn events_reach_a_client_of_http2_one_by_one() {
    let (backend, next) = told(EVENTS, chunk);
    let proxy = proxy(&[backend.addr], |settings| settings);
    wakeful::block_on(timeout(GUARD, async {
        let host = host(addr(&proxy), HttpVersion::Http2);
        let request = Request::get("http://x/").body(Full::<Bytes>::default()).unwrap();
        let mut body = host.send(request).await.unwrap().into_body();
        for event in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
            next.send(event).unwrap();
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), event);
        }
    }))
    .expect("a hang is a failure");
}

/// Where bodies of requests are not gathered, both sides speak in turn over any pair of protocols.
#[test]
fn a_request_that_is_sent_in_pieces_is_answered_piece_by_piece() {
    for (client, backend) in [
        (HttpVersion::Http1, HttpVersion::Http1),
        (HttpVersion::Http1, HttpVersion::Http2),
        (HttpVersion::Http2, HttpVersion::Http1),
        (HttpVersion::Http2, HttpVersion::Http2),
    ] {
        let (_running, to) = echo();
        let proxy = proxy(&[to], |settings| settings.request_buffer(0).version(backend));
        wakeful::block_on(timeout(GUARD, async {
            let host = host(addr(&proxy), client);
            let (say, said) = spoken();
            let request = Request::post("http://x/").body(said).unwrap();
            say.try_send(WORDS[0].into()).unwrap();
            let mut body = host.send(request).await.unwrap().into_body();
            for (at, word) in WORDS.iter().enumerate() {
                let heard = body.frame().await.unwrap().unwrap().into_data().unwrap();
                assert_eq!(heard, word, "{client:?} {backend:?}");
                match WORDS.get(at + 1) {
                    Some(next) => say.try_send((*next).into()).unwrap(),
                    None => drop(say.close()),
                }
            }
            assert!(body.collect().await.unwrap().to_bytes().is_empty());
        }))
        .expect("a hang is a failure");
    }
}

/// With the default settings a small request is gathered first; how slowly it came does not matter
/// to its response.
#[test]
fn a_slow_request_has_its_events_one_by_one_as_well() {
    let (backend, next) = told(EVENTS, chunk);
    let proxy = proxy(&[backend.addr], |settings| settings);
    let mut stream = connect(addr(&proxy));
    stream
        .write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 11\r\nconnection: close\r\n\r\n")
        .unwrap();
    for (at, byte) in b"hello world".iter().enumerate() {
        stream.write_all(&[*byte]).unwrap();
        until("it waits", || {
            proxy.counts().buffered() > at as u64 || !backend.requests().is_empty()
        });
    }
    until("the backend has it", || backend.requests().len() == 1);
    assert!(backend.requests()[0].ends_with("hello world"));
    let mut text = String::new();
    read_until(&mut stream, &mut text, "\r\n\r\n");
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        next.send(event).unwrap();
        read_until(&mut stream, &mut text, &chunk(event));
    }
}

/// A full buffer of the loop is no reason to keep what a client could have.
#[test]
fn events_go_on_though_the_loop_has_no_room() {
    let (backend, next) = told(EVENTS, chunk);
    let proxy = proxy(&[backend.addr], |settings| {
        settings.loop_buffer(1).response_buffer(1).upstream_timeout(Duration::from_secs(60))
    });
    let mut stream = connect(addr(&proxy));
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    read_until(&mut stream, &mut text, "\r\n\r\n");
    for event in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
        next.send(event).unwrap();
        read_until(&mut stream, &mut text, &chunk(event));
    }
}

/// A backend that answers before it has the whole request owes nothing more until it has.
#[test]
fn a_response_that_has_begun_waits_for_a_long_request() {
    let silence = Duration::from_millis(400);
    let backend = Backend::start(|_, stream| {
        head(stream);
        stream.write_all(EVENTS.as_bytes()).unwrap();
        read_until(stream, &mut String::new(), "\r\n0\r\n\r\n");
        stream.write_all(b"3\r\nall\r\n0\r\n\r\n").unwrap();
    });
    let proxy =
        proxy(&[backend.addr], |settings| settings.request_buffer(0).upstream_timeout(silence));
    let mut stream = connect(addr(&proxy));
    let head =
        "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    read_until(&mut stream, &mut String::new(), "\r\n\r\n");
    let begun = Instant::now();
    while begun.elapsed() < 3 * silence {
        stream.write_all(chunk("more").as_bytes()).unwrap();
        std::thread::sleep(silence / 20);
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(read_all(&mut stream), "3\r\nall\r\n0\r\n\r\n");
}
