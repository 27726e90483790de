//! What hyper was seen to do: it says little, so its service and its io are wrapped.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::Request;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::Service;

use crate::connection::deadlines::{Phase, Watch};
use crate::connection::protocol::Ends;

/// What hyper was seen to do.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// It has called the service.
    pub(super) served: Cell<bool>,
    /// Something has come since the last request was over.
    pub(super) comes: Cell<bool>,
    /// It has not flushed behind its last write.
    pub(super) unflushed: Cell<bool>,
    /// It was told to end when it is idle.
    pub(super) finishes: Cell<bool>,
    /// It was told to end because the connection goes on elsewhere.
    pub(super) leaves: Cell<bool>,
    /// It has ended its side. Behind a request for an upgrade that came to nothing it does not, and
    /// leaves that to others.
    pub(super) is_shut: Cell<bool>,
}

impl Seen {
    pub(super) fn phase(&self, watch: &Watch) -> Phase {
        // A body that somebody reads behind its response is not to be cut off by the idle timeout.
        // But it may also be one that is complete and only held, so the drain tries.
        let is_read = || !watch.is_closing() && watch.is_body_held();
        if watch.is_in_flight() || watch.is_write_blocked() || self.finishes.get() || is_read() {
            Phase::Busy
        } else if self.comes.get() {
            Phase::Header
        } else if watch.life.served() == 0 {
            Phase::First
        } else {
            Phase::Idle
        }
    }

    /// Before the first request hyper does not count as idle.
    pub(super) fn is_between_requests(&self, watch: &Watch) -> bool {
        // What is left of a body that was dropped, hyper may still read.
        self.served.get()
            && !watch.is_in_flight()
            && !self.unflushed.get()
            && !watch.is_body_held()
            && !watch.is_body_cut()
    }
}

pub(super) struct WatchedService<S> {
    pub(super) service: S,
    pub(super) seen: Rc<Seen>,
}

impl<S: Service<Request<Incoming>>> Service<Request<Incoming>> for WatchedService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    #[inline(always)]
    fn call(&self, request: Request<Incoming>) -> S::Future {
        self.seen.comes.set(false);
        self.seen.served.set(true);
        self.service.call(request)
    }
}

pub(super) struct WatchedIo<IO> {
    pub(super) io: IO,
    pub(super) seen: Rc<Seen>,
    pub(super) watch: Rc<Watch>,
}

impl<IO: Read + Unpin> Read for WatchedIo<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io, watch, .. } = &mut *self;
        let read = watch.poll_read(Pin::new(io), cx, buf);
        if !self.watch.is_in_flight() && !self.watch.is_body_held() {
            if read.is_ready() {
                let is_rest = self.watch.takes_rest_of_body();
                self.seen.comes.set(!is_rest);
            } else {
                self.watch.goes_on();
            }
        }
        read
    }
}

impl<IO: Write + Ends + Unpin> Write for WatchedIo<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.seen.unflushed.set(true);
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.watch.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.seen.unflushed.set(true);
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.watch.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// hyper flushes when it has nothing left to write, in every poll. It does not read while it
    /// serves a request, so that a client may end its side and still get its answer: one that is
    /// gone altogether it would not find out before something is written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.watch.checks_client.take() && self.io.is_gone() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.seen.unflushed.set(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.seen.leaves.get() {
            return Poll::Ready(Ok(()));
        }
        self.seen.is_shut.set(true);
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
