//! The streams of an HTTP/2 connection. Each is a separate task, which ends when its limits require
//! it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use hyper::rt::Executor;
use pin_project_lite::pin_project;

use crate::connection::{ConnectionState, Key};

/// Spawns them.
#[derive(Debug, Clone)]
pub(crate) struct Streams(pub(crate) Rc<ConnectionState>);

impl<F: Future<Output = ()> + 'static> Executor<F> for Streams {
    fn execute(&self, future: F) {
        match self.0.requests().take_called() {
            // hyper calls the service, and directly afterwards spawns the stream that answers.
            Some(key) => wakeful::spawn(Stream { future, key, state: self.0.clone() }).detach(),
            // This task sends the data of an upgraded stream. The connection is in use until it
            // ends.
            None => {
                let tunnel = Tunnel::open(self.0.clone());
                wakeful::spawn(async move {
                    let _tunnel = tunnel;
                    future.await;
                })
                .detach();
            }
        }
    }
}

/// An HTTP/2 connection, whose streams end when this is dropped. h2 also reports its end to them,
/// except after a panic (for example, of a body's data), which leaves its lock poisoned. Then they
/// would wait for ever, and stay in flight.
pub(crate) struct EndsStreams<'a>(pub(crate) &'a ConnectionState);

impl Drop for EndsStreams<'_> {
    fn drop(&mut self) {
        self.0.requests().abort_all();
    }
}

/// A stream that was upgraded.
struct Tunnel {
    state: Rc<ConnectionState>,
    is_first: bool,
}

impl Tunnel {
    fn open(state: Rc<ConnectionState>) -> Self {
        let is_first = state.requests().tunnel_opens();
        Self { state, is_first }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.state.requests().tunnel_closes(self.is_first);
    }
}

pin_project! {
    /// If this is dropped in the middle of its response, h2 resets the stream.
    struct Stream<F> {
        #[pin]
        future: F,
        key: Key,
        state: Rc<ConnectionState>,
    }
}

impl<F: Future<Output = ()>> Future for Stream<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.state.requests().is_aborted(*this.key) {
            return Poll::Ready(());
        }
        this.state.requests().answers(*this.key);
        let polled = this.future.poll(cx);
        if polled.is_pending() {
            this.state.requests().wake_when_decided(*this.key, cx.waker());
        }
        polled
    }
}
