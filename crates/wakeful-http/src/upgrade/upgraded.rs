//! The connection that an upgrade leaves, whatever it was.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use futures_io::{AsyncRead, AsyncWrite};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

use crate::foreign_code::{Locking, SafeWaker};

/// Any connection, TLS or not.
pub(crate) trait Io: Read + Write + Unpin {}

impl<T: Read + Write + Unpin> Io for T {}

/// A connection that has left HTTP. Reads and writes by the traits of futures-io and of hyper;
/// dropped, it closes.
///
/// *Threads*: neither `Send` nor `Sync`, as the connection beneath.
pub struct Upgraded {
    /// Came behind the request, and is read first.
    unread: Bytes,
    io: Locking<Box<dyn Io>>,
    wakers: Wakers,
    _open: Option<OpenGuard>,
}

impl Upgraded {
    pub(super) fn new(io: impl Io + 'static) -> Self {
        Self::with(io, Bytes::new(), None)
    }

    /// `unread` was read before, and comes first.
    pub(crate) fn behind(unread: Bytes, io: impl Io + 'static) -> Self {
        Self { unread, ..Self::new(io) }
    }

    /// One whose end somebody waits for, by the future.
    pub(super) fn watched(
        io: impl Io + 'static,
        unread: Bytes,
    ) -> (Self, impl Future<Output = ()>) {
        let open = Rc::new(Open::default());
        let guard = OpenGuard(open.clone());
        let dropped = poll_fn(move |cx| {
            if open.is_closed.get() {
                return Poll::Ready(());
            }
            open.waker.set(Some(cx.waker().clone()));
            Poll::Pending
        });
        (Self::with(io, unread, Some(guard)), dropped)
    }

    fn with(io: impl Io + 'static, unread: Bytes, open: Option<OpenGuard>) -> Self {
        let (io, wakers) = (Locking::new(Box::new(io) as Box<dyn Io>), Wakers::default());
        Self { unread, io, wakers, _open: open }
    }
}

/// Of the two directions.
#[derive(Default)]
struct Wakers {
    reader: SafeWaker,
    writer: SafeWaker,
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded").field("unread", &self.unread.len()).finish_non_exhaustive()
    }
}

impl Read for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            let this = &mut *self;
            return this.wakers.reader.with(cx, |cx| Pin::new(&mut *this.io).poll_read(cx, buf));
        }
        let count = self.unread.len().min(buf.remaining());
        buf.put_slice(&self.unread[..count]);
        self.unread.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl Write for Upgraded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.wakers.writer.with(cx, |cx| Pin::new(&mut *this.io).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.wakers.writer.with(cx, |cx| Pin::new(&mut *this.io).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.wakers.writer.with(cx, |cx| Pin::new(&mut *this.io).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.wakers.writer.with(cx, |cx| Pin::new(&mut *this.io).poll_shutdown(cx))
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        Read::poll_read(self, cx, buf.unfilled()).map_ok(|()| buf.filled().len())
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write(self, cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write_vectored(self, cx, slices)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(self, cx)
    }

    /// Ends the writing side.
    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_shutdown(self, cx)
    }
}

/// Whether an upgraded connection is still in use.
#[derive(Default)]
struct Open {
    is_closed: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

struct OpenGuard(Rc<Open>);

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.is_closed.set(true);
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }
}
