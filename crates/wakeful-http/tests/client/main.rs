//! The client, against this crate's own server, and against servers that do what a test tells them
//! to.

#[path = "../common/mod.rs"]
mod common;
mod http1;
mod http2;
mod http2_reset;
mod limits;
#[path = "../tls/material.rs"]
#[allow(dead_code)] // The tests of TLS use the rest.
mod material;
mod panics;
mod retire;
mod retries;
mod stream_limit;
mod tls;
mod upgrade;

use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::LocalBoxStream;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use wakeful::net::{TcpListener, TcpStream};
use wakeful::time::timeout;
use wakeful_http::client::{ClientBuilder, ClientError, Host, HttpVersion, ResponseBody};

use common::GUARD;

type Client = wakeful_http::client::Client<Full<Bytes>>;

/// Runs a test on a loop, but not for ever.
fn on_a_loop(test: impl Future<Output = ()>) {
    wakeful::block_on(timeout(GUARD, test)).expect("a hang is a failure");
}

/// A server on this loop that gives each connection to `script`, with its number.
async fn scripted<F>(script: impl Fn(usize, TcpStream) -> F + 'static) -> SocketAddr
where
    F: Future<Output = ()> + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    wakeful::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            wakeful::spawn(script(number, stream)).detach();
        }
    })
    .detach();
    addr
}

/// Reads a request with its body. Empty: the client has closed.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    loop {
        let known = String::from_utf8_lossy(&text);
        if let Some((head, body)) = known.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return known.into_owned();
            }
        }
        let mut buf = [0; 4096];
        match stream.read(&mut buf).await {
            Ok(0) | Err(_) => return String::new(),
            Ok(read) => text.extend_from_slice(&buf[..read]),
        }
    }
}

async fn answer(stream: &mut TcpStream, body: &str) {
    let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).await.unwrap();
}

/// Waits until the other side has closed.
async fn until_closed(stream: &mut TcpStream) {
    let mut buf = [0; 4096];
    while !matches!(stream.read(&mut buf).await, Ok(0) | Err(_)) {}
}

/// A server that answers the beginning of a request, neither reads the rest nor closes.
async fn answers_and_reads_no_more() -> SocketAddr {
    scripted(async |_, mut stream| {
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        answer(&mut stream, "early").await;
        std::future::pending::<()>().await;
    })
    .await
}

/// A request that is larger than the buffers of the kernel. hyper takes all of its body at once:
/// was that dropped?
fn unread() -> (Request<Full<Bytes>>, impl Fn() -> bool) {
    static LARGE: [u8; 1 << 25] = [0; 1 << 25];
    struct Large(#[allow(dead_code)] Arc<()>);
    impl AsRef<[u8]> for Large {
        fn as_ref(&self) -> &[u8] {
            &LARGE
        }
    }
    let held = Arc::new(());
    let body = Full::from(Bytes::from_owner(Large(held.clone())));
    (Request::post("/").body(body).unwrap(), move || Arc::strong_count(&held) == 1)
}

fn host(
    settings: ClientBuilder,
    addr: SocketAddr,
    version: HttpVersion,
) -> (Client, Host<Full<Bytes>>) {
    let client: Client = settings.build();
    let target = wakeful_http::client::Target::from(addr).version(version);
    let host = client.host(&target);
    (client, host)
}

fn http1(settings: ClientBuilder, addr: SocketAddr) -> (Client, Host<Full<Bytes>>) {
    host(settings, addr, HttpVersion::Http1)
}

fn http2(settings: ClientBuilder, addr: SocketAddr) -> (Client, Host<Full<Bytes>>) {
    host(settings, addr, HttpVersion::Http2)
}

fn request(method: &str, path: &str, body: &'static str) -> Request<Full<Bytes>> {
    Request::builder().method(method).uri(path).body(Full::from(body)).unwrap()
}

fn get(path: &str) -> Request<Full<Bytes>> {
    request("GET", path, "")
}

type Pieces = StreamBody<LocalBoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// A body without an end, until its sender is dropped.
fn pieces() -> (async_channel::Sender<Bytes>, Pieces) {
    let (sender, pieces) = async_channel::unbounded();
    let pieces = pieces.map(|piece| Ok(Frame::data(piece)));
    (sender, StreamBody::new(pieces.boxed_local()))
}

async fn text(response: Result<Response<ResponseBody>, ClientError>) -> String {
    let body = response.unwrap().into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Lets everything else on the loop run until `condition` holds.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        wakeful::task::yield_now().await;
    }
}

fn counter() -> (Rc<Cell<usize>>, Rc<Cell<usize>>) {
    let one = Rc::<Cell<usize>>::default();
    (one.clone(), one)
}
