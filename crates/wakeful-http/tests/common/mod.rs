//! What the tests share: a router to serve, and clients of both kinds.

#![allow(dead_code, unreachable_pub)] // Each test file is a program of its own and uses a part.

pub mod frames;

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use http::Request;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use send_wrapper::SendWrapper;
use wakeful::LoopGroup;
use wakeful::io::{LoopExecutor, LoopTimer};
use wakeful::net::{ListenAddr, TcpStream};
use wakeful_http::{Running, Server};

/// A hang is a failure, in its own time.
pub const GUARD: Duration = Duration::from_secs(20);

pub fn router() -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/echo", post(|body: Body| async { body }))
        .route("/n/{n}", get(|path: axum::extract::Path<u32>| async move { path.0.to_string() }))
        .route(
            "/slow",
            get(|| async {
                wakeful::time::sleep(Duration::from_millis(50)).await;
                "slow"
            }),
        )
        .route("/never", get(|| async { std::future::pending::<&str>().await }))
}

pub fn server() -> Server {
    Server::bind("127.0.0.1:0").unwrap().group(LoopGroup::builder().loops(2))
}

pub fn addr(running: &Running) -> SocketAddr {
    match running.local_addrs()[0] {
        ListenAddr::Tcp(addr) => addr,
        _ => unreachable!("bound to TCP"),
    }
}

pub fn raw(running: &Running) -> StdTcpStream {
    let stream = StdTcpStream::connect(addr(running)).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream
}

/// Everything until the server closes.
pub fn read_all(mut stream: StdTcpStream) -> String {
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    String::from_utf8_lossy(&text).into_owned()
}

pub fn is_served(running: &Running) {
    let mut stream = raw(running);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    assert!(read_all(stream).ends_with("hello"));
}

pub async fn http1_client(addr: SocketAddr) -> http1::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(addr).await.unwrap();
    let (sender, connection) = http1::handshake(stream).await.unwrap();
    wakeful::spawn(connection).detach();
    sender
}

pub async fn http2_client(addr: SocketAddr) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(addr).await.unwrap();
    let builder = http2::Builder::new(LoopExecutor);
    let (sender, connection) = builder.clone().timer(LoopTimer).handshake(stream).await.unwrap();
    wakeful::spawn(connection).detach();
    sender
}

pub fn request(method: &str, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let uri = format!("http://localhost{path}");
    let request = Request::builder().method(method).uri(uri).header("host", "localhost");
    request.body(Full::new(body.into())).unwrap()
}

/// A route, `/gated`, that tells when a request has reached it and answers once it is opened.
pub struct Gate {
    entered: Receiver<()>,
    open: Sender<()>,
}

impl Gate {
    pub fn on(router: Router) -> (Self, Router) {
        let (enter, entered) = async_channel::unbounded();
        let (open, opened) = async_channel::bounded::<()>(1);
        let handler = async move || {
            enter.send(()).await.unwrap();
            // Nothing is sent: it ends by being closed.
            let _ = opened.recv().await;
            "released"
        };
        (Self { entered, open }, router.route("/gated", get(handler)))
    }

    /// Waits until one more request is in its handler.
    pub fn wait_for_one(&self) {
        self.entered.recv_blocking().unwrap();
    }

    /// As [`wait_for_one`](Self::wait_for_one), for a client on a loop.
    pub async fn one_entered(&self) {
        self.entered.recv().await.unwrap();
    }

    pub fn open(&self) {
        self.open.close();
    }
}

/// Waits for what has to come, without an idea of when.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < GUARD, "never: {what}");
        thread::yield_now();
    }
}

/// Polls `future` where it is woken, inside of the wake, on this thread. Only its wakers keep it.
pub fn poll_at_once(future: impl Future<Output = ()> + 'static) {
    let future = RefCell::new(Some(Box::pin(future) as Pin<Box<_>>));
    let inner = Inner { future, is_polled: Cell::new(false), is_woken: Cell::new(false) };
    Arc::new(AtOnce(SendWrapper::new(inner))).wake();
}

struct AtOnce(SendWrapper<Inner>);

struct Inner {
    future: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
    is_polled: Cell<bool>,
    is_woken: Cell<bool>,
}

impl Wake for AtOnce {
    fn wake(self: Arc<Self>) {
        let Inner { future, is_polled, is_woken } = &*self.0;
        is_woken.set(true);
        if is_polled.replace(true) {
            return;
        }
        let waker = Waker::from(self.clone());
        let mut cx = Context::from_waker(&waker);
        while is_woken.replace(false) {
            let mut future = future.borrow_mut();
            if let Some(Poll::Ready(())) =
                future.as_mut().map(|future| future.as_mut().poll(&mut cx))
            {
                *future = None;
            }
        }
        is_polled.set(false);
    }
}
