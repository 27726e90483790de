//! The io and the service of an HTTP/1 connection that hyper gets. They record what passes through.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Request, Version};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::Service;

use super::observed::Observed;
use crate::connection::{ConnectionState, Liveness};
use crate::read_ration::ReadRation;
use crate::upgrade::Io;

pub(super) struct ObservedService<S> {
    pub(super) service: S,
    pub(super) observed: Rc<Observed>,
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for ObservedService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    #[inline(always)]
    fn call(&self, request: Request<Incoming>) -> S::Future {
        self.observed.comes.set(false);
        self.observed.served.set(true);
        self.observed.is_early.set(self.observed.unflushed.get());
        self.observed.waits_to_read.set(false);
        self.observed.ends_by_close.set(request.version() == Version::HTTP_10);
        self.service.call(request)
    }
}

/// If it is dropped in the middle of a response that the close would end (HTTP/1.0), it resets the
/// connection, because the response would look complete.
pub(super) struct ObservedIo<IO: Io> {
    /// `None`: it was taken.
    io: Option<IO>,
    observed: Rc<Observed>,
    state: Rc<ConnectionState>,
    ration: ReadRation,
}

impl<IO: Io> ObservedIo<IO> {
    pub(super) fn new(io: IO, observed: Rc<Observed>, state: Rc<ConnectionState>) -> Self {
        Self { io: Some(io), observed, state, ration: ReadRation::default() }
    }

    /// Returns the io, for an orderly end.
    pub(super) fn into_io(mut self) -> IO {
        self.io.take().expect("it is taken only here")
    }

    fn io(&mut self) -> Pin<&mut IO> {
        Pin::new(self.io.as_mut().expect("it is taken only at the end"))
    }
}

impl<IO: Io> Drop for ObservedIo<IO> {
    fn drop(&mut self) {
        let Self { io: Some(io), observed, state, .. } = self else { return };
        let is_complete = !state.requests().is_in_flight()
            && !state.writes().is_blocked()
            && !observed.unflushed.get();
        if observed.ends_by_close.get() && !observed.is_shut.get() && !is_complete {
            io.abort();
        }
    }
}

impl<IO: Io> Read for ObservedIo<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io: Some(io), observed, state, ration } = &mut *self else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        ration.poll_read(cx, buf, |cx, buf| {
            let read = state.poll_read(Pin::new(io), cx, buf);
            observed.waits_to_read.set(read.is_pending());
            if read.is_ready() && !state.requests().is_in_flight() {
                if state.last_body().is_held() {
                    state.is_not_silent();
                } else {
                    // It may be the rest of a body that was dropped.
                    observed.comes.set(!state.last_body().is_cut());
                }
            }
            read
        })
    }
}

/// The beginning of hyper's own answer to a head that is too large, and to a length that it cannot
/// represent.
const TOO_LARGE: &[u8] = b"HTTP/1.1 431 ";

impl<IO: Io> ObservedIo<IO> {
    /// Is this hyper's own answer to something too large? It is, if the service was not called
    /// since the last bytes came, and all earlier writes are flushed.
    #[inline]
    fn is_held_back(&self, first: &[u8]) -> bool {
        let Observed { comes, unflushed, found_too_large, .. } = &*self.observed;
        if comes.get() && !unflushed.get() && first.starts_with(TOO_LARGE) {
            found_too_large.set(true);
        }
        found_too_large.get()
    }
}

impl<IO: Io + Liveness> ObservedIo<IO> {
    #[inline]
    fn wrote(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = written {
            self.state.writes().wrote(*count);
        }
        self.waits(written.is_pending());
    }

    /// Notes whether the socket takes nothing more.
    #[inline]
    fn waits(&self, is_blocked: bool) {
        let io = self.io.as_ref().expect("it is taken only at the end");
        self.state.waits_for_socket(is_blocked, |written| io.taken(written));
    }
}

impl<IO: Io + Liveness> Write for ObservedIo<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_held_back(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        self.observed.unflushed.set(true);
        let written = self.io().poll_write(cx, buf);
        self.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_held_back(slices.first().map_or(&[], |first| &**first)) {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        self.observed.unflushed.set(true);
        let written = self.io().poll_write_vectored(cx, slices);
        self.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.as_ref().is_some_and(Write::is_write_vectored)
    }

    /// hyper flushes in every poll in which it has nothing left to write. While it serves a request
    /// it does not read, so that a client may end its side and still get its answer. So it would
    /// not notice that a client is gone before it writes. The check is therefore made here.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.state.takes_client_check() && self.io().is_gone() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let flushed = self.io().poll_flush(cx);
        self.observed.unflushed.set(flushed.is_pending());
        self.waits(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Observed { leaves, is_upgraded, found_too_large, .. } = &*self.observed;
        if leaves.get() || is_upgraded.get() || found_too_large.get() {
            return Poll::Ready(Ok(()));
        }
        // What hyper has read is the client's end, or is still in its buffer. Then `close` waits
        // anyway. The end of our own side must not count.
        if !self.observed.is_shut.replace(true) && !self.observed.comes.get() {
            let at_risk = self.io().at_risk();
            self.observed.is_unsent.set(at_risk > 0);
        }
        let shut = self.io().poll_shutdown(cx);
        self.waits(shut.is_pending());
        shut
    }
}
