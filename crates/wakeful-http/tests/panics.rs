//! A handler or a body that panics ends its request (HTTP/1.1: its connection), and gives back what that held.

mod common;

use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::routing::get;
use wakeful_http::Limits;

use common::frames::{Client, *};
use common::*;

struct Panics;

impl futures_lite::Stream for Panics {
    type Item = Result<Bytes, std::io::Error>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        panic!("of a body, on purpose")
    }
}

async fn panics() -> &'static str {
    panic!("of a handler, on purpose")
}

#[test]
fn requests_that_panic_give_back_their_places() {
    let app = router()
        .route("/handler", get(panics))
        .route("/body", get(|| async { Body::from_stream(Panics) }));
    let limits = Limits { max_requests: 1, max_connections_per_peer: 1, ..Limits::default() };
    let running = server().limits(limits).start(app).unwrap();
    for path in ["/handler", "/body"].repeat(3) {
        let mut stream = raw(&running);
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(read_all(stream), "");
        until("it is closed", || running.counts().open() == 0);
    }
    assert_eq!(running.http_counts().in_flight(), 0);
    let mut client = Client::new(&running);
    for (number, path) in ["/handler", "/body"].repeat(3).into_iter().enumerate() {
        let stream = 1 + 2 * u32::try_from(number).unwrap();
        client.get(stream, path);
        let reset = client.wait_for(RST_STREAM);
        assert_eq!((reset.stream, reset.error()), (stream, CANCEL));
    }
    assert_eq!(running.http_counts().in_flight(), 0);
}
