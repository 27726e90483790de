//! Bodies that have nothing but frames without data: hyper would ask them for ever.

mod common;

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http_body::Frame;
use wakeful::LoopGroup;
use wakeful::time::timeout;
use wakeful_http::client::Client;

use common::*;

/// `left` frames without data, then one with data.
struct Empty {
    left: u64,
    ended: bool,
}

const ENDLESS: Empty = Empty { left: u64::MAX, ended: false };

impl http_body::Body for Empty {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left > 0 {
            self.left -= 1;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::new()))));
        }
        if std::mem::replace(&mut self.ended, true) {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"the end")))))
    }
}

/// On one loop: `/endless`, and `/some`, which come to an end.
fn start() -> wakeful_http::Running {
    let router = router()
        .route("/endless", get(|| async { Body::new(ENDLESS) }))
        .route("/some", get(|| async { Body::new(Empty { left: 1_000, ended: false }) }));
    server().group(LoopGroup::builder().loops(1)).start(router).unwrap()
}

fn ask(addr: std::net::SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

#[test]
fn a_response_without_data_leaves_its_loop_to_others() {
    let running = start();
    let addr = addr(&running);
    let endless = ask(addr, "/endless");
    let mut answer = String::new();
    ask(addr, "/some").read_to_string(&mut answer).unwrap();
    assert!(answer.contains("the end"), "{answer:?}");
    drop(endless);
    running.shutdown(Duration::from_secs(10)).expect("no loop is blocked");
}

#[test]
fn a_request_without_data_leaves_its_loop_to_others() {
    let running = start();
    let url = format!("http://{}/some", running.local_addrs()[0]);
    wakeful::block_on(async {
        let client = Client::new();
        let endless = http::Request::post(&url).body(Body::new(ENDLESS)).unwrap();
        let cut = timeout(Duration::from_millis(200), client.send(endless)).await;
        // Its method is refused, or it waits for the body's end: this loop continues either way.
        drop(cut);
        let some = client.send(http::Request::get(&url).body(Body::empty()).unwrap()).await;
        assert_eq!(some.expect("the loop goes on").status(), 200);
    });
    running.shutdown(Duration::from_secs(10)).expect("no loop is blocked");
}
