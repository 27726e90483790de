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

/// The connections that a listener takes, one after the other: a [`futures_core::Stream`] of
/// `io::Result`s.
///
/// It is made by the `incoming` of a listener, and borrows it. Several may be used at once, beside
/// `accept`: each connection goes to one of them.
///
/// The stream never ends; an error does not end it either. An error for which
/// [`is_shortage`](crate::accept::is_shortage) is true may pass. The next item would be the same
/// error at once, so wait a little before you ask for it.
///
/// # Cancel safety
/// It takes only the connections that it yields. When it is dropped, the other connections stay
/// with the listener.
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
