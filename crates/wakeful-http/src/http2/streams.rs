//! The streams of an HTTP/2 connection. Each is a separate task, which ends when its limits require
//! it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use hyper::rt::Executor;
use pin_project_lite::pin_project;

use crate::connection::{ConnectionState, Key};
use crate::foreign_code;
use crate::upgrade::StreamLink;

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
                wakeful::spawn(Sending { future: Some(future), tunnel }).detach();
            }
        }
    }
}

/// An HTTP/2 connection, whose streams end when this is dropped. h2 also reports its end to them,
/// except after a panic (for example, of a body's data), which leaves its lock poisoned. Then they
/// would wait for ever, and stay in flight. So would upgraded streams. (Without a panic, those may
/// still hold what the client has sent.)
pub(crate) struct EndsStreams<'a>(pub(crate) &'a ConnectionState);

impl Drop for EndsStreams<'_> {
    fn drop(&mut self) {
        self.0.requests().abort_all();
        if std::thread::panicking() {
            self.0.requests().lose_tunnels();
        }
    }
}

/// A stream that was upgraded.
struct Tunnel {
    state: Rc<ConnectionState>,
    place: usize,
    link: StreamLink,
}

impl Tunnel {
    fn open(state: Rc<ConnectionState>) -> Self {
        let (place, link) = state.requests().tunnel_opens();
        link.task_begins();
        Self { state, place, link }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.state.requests().tunnel_closes(self.place);
        self.link.task_ends();
    }
}

pin_project! {
    /// Sends the data of an upgraded stream. If hyper's future is dropped before its end, h2 resets
    /// the stream.
    struct Sending<F> {
        // `None`: it has ended. It is dropped before the tunnel.
        #[pin]
        future: Option<F>,
        tunnel: Tunnel,
    }
}

impl<F: Future<Output = ()>> Future for Sending<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let link = &this.tunnel.link;
        let must_end = link.polls_task(cx);
        let is_asked = link.is_asked();
        let polled = match this.future.as_mut().as_pin_mut() {
            Some(future) if !must_end => future.poll(cx),
            _ => Poll::Ready(()),
        };
        if polled.is_ready() {
            // If a panic has ended the connection, h2 panics here.
            foreign_code::contain(|| this.future.set(None));
        } else if is_asked {
            link.answer();
        }
        polled
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
