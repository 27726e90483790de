//! Bodies of requests that panic: they fail their request, and the pool keeps its room.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use wakeful_http::client::{Client, HttpVersion};

use super::common::{addr, router, server};
use super::{BodyExt, on_a_loop};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Panics {
    Never,
    InPoll,
    InDrop,
    InSizeHint,
}

struct RequestBody(Panics);

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        assert!(self.0 != Panics::InPoll, "in a body's poll, on purpose");
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        assert!(self.0 != Panics::InSizeHint, "in a body's size hint, on purpose");
        SizeHint::default()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        assert!(self.0 != Panics::InDrop, "in a body's drop, on purpose");
    }
}

#[test]
fn bodies_of_requests_that_panic_leave_the_pool_its_room() {
    const CONNECTIONS: usize = 2;
    let running = server().start(router()).unwrap();
    let uri = format!("http://{}/echo", addr(&running));
    on_a_loop(async {
        for version in [HttpVersion::Http1, HttpVersion::Http2] {
            for panics in [Panics::InPoll, Panics::InDrop, Panics::InSizeHint] {
                let client = Client::builder()
                    .version(version)
                    .max_connections(CONNECTIONS)
                    .build::<RequestBody>();
                let post = |panics| Request::post(&uri).body(RequestBody(panics)).unwrap();
                for _ in 0..=CONNECTIONS {
                    let (client, request) = (client.clone(), post(panics));
                    // The panic may come out of `send`, too.
                    let sent = wakeful::spawn(async move { client.send(request).await.map(drop) });
                    let _ = sent.await;
                }
                let response = client.send(post(Panics::Never)).await.unwrap();
                assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
            }
        }
    });
}
