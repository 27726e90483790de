//! An HTTP/2 connection's streams, each a task of its own that ends when its limits say so.

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
            // hyper calls the service, and spawns the stream that answers at once.
            Some(key) => wakeful::spawn(Stream { future, key, state: self.0.clone() }).detach(),
            // What an upgraded stream sends: until it ends, the connection is in use.
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

/// An HTTP/2 connection, whose streams end when this is dropped. h2 tells them of its end, too, but
/// not when it was a panic (of a body's data, say), which leaves its lock poisoned: they would wait
/// for ever, and stay in flight.
pub(crate) struct EndsStreams<'a>(pub(crate) &'a ConnectionState);

impl Drop for EndsStreams<'_> {
    fn drop(&mut self) {
        self.0.requests().abort_all();
    }
}

/// A stream that was upgraded.
struct Tunnel(Rc<ConnectionState>);

impl Tunnel {
    fn open(state: Rc<ConnectionState>) -> Self {
        state.requests().tunnel_opens();
        Self(state)
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.0.requests().tunnel_closes();
    }
}

pin_project! {
    /// Dropped in the middle of its response, h2 resets it.
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
        let polled = this.future.poll(cx);
        if polled.is_pending() {
            this.state.requests().wake_when_decided(*this.key, cx.waker());
        }
        polled
    }
}
