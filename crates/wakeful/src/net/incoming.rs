//! A listener's connections as a stream.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::{FusedStream, Stream};

use super::accept::Acceptor;
use crate::driver::registered::Registered;

/// Makes a stream of a connection that a listener has taken.
type OnLoop<S> = fn(&Registered<Arc<OwnedFd>>, OwnedFd) -> io::Result<S>;

/// The connections of a listener, as a [`futures_core::Stream`] of `io::Result`s.
///
/// A listener's `incoming` returns this stream, which borrows the listener. You may use several
/// such streams, and `accept`, at the same time: each connection goes to one of them.
///
/// The stream never ends, even after an error. If [`is_shortage`](crate::accept::is_shortage) is
/// true for an error, the cause may pass. Wait a little before you ask for the next item: without a
/// pause, it would be the same error.
///
/// # Cancel safety
/// Cancel-safe: it accepts only the connections that it yields. When it is dropped, the other
/// connections stay in the backlog.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[must_use = "streams do nothing unless polled"]
pub struct Incoming<'a, S> {
    acceptor: Acceptor<'a>,
    on_loop: OnLoop<S>,
}

impl<'a, S> Incoming<'a, S> {
    pub(super) fn new(listener: &'a Registered<Arc<OwnedFd>>, on_loop: OnLoop<S>) -> Self {
        Self { acceptor: Acceptor::new(listener), on_loop }
    }
}

impl<S> Stream for Incoming<'_, S> {
    type Item = io::Result<S>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<S>>> {
        let accepted = ready!(self.acceptor.poll_next(cx));
        let stream = accepted.and_then(|(fd, _)| (self.on_loop)(self.acceptor.listener(), fd));
        Poll::Ready(Some(stream))
    }
}

impl<S> FusedStream for Incoming<'_, S> {
    fn is_terminated(&self) -> bool {
        false
    }
}

impl<S> fmt::Debug for Incoming<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Incoming").field(self.acceptor.listener().io()).finish()
    }
}
