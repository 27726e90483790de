//! The io of an HTTP/2 connection that hyper gets. It observes the bytes, and makes a client that
//! sends a lot at once wait between its reads.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

use super::observed_frames::ObservedFrames;
use crate::connection::{ConnectionState, Liveness};

pub(super) struct ObservedIo<I> {
    pub(super) io: Rc<RefCell<I>>,
    pub(super) frames: Rc<RefCell<ObservedFrames>>,
    pub(super) state: Rc<ConnectionState>,
}

impl<I: Read + Unpin> Read for ObservedIo<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut frames = self.frames.borrow_mut();
        if frames.flood.is_some() || frames.gives_way {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.state.loop_state().with_scratch(|scratch| {
            let room = scratch.len().min(buf.remaining()).min(frames.room);
            let mut read = ReadBuf::new(&mut scratch[..room]);
            ready!(Pin::new(&mut *self.io.borrow_mut()).poll_read(cx, read.unfilled()))?;
            frames.is_at_end = read.filled().is_empty();
            frames.received(read.filled(), &mut self.state.streams());
            if frames.flood.is_some() {
                // The driver ends the connection after this poll, so h2 need not handle the rest of
                // the flood.
                return Poll::Pending;
            }
            buf.put_slice(read.filled());
            Poll::Ready(Ok(()))
        })
    }
}

impl<I: Liveness> ObservedIo<I> {
    fn wrote(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = written {
            self.state.writes().wrote(*count);
        }
        self.waits(written.is_pending());
    }

    /// Notes whether the socket takes nothing more.
    fn waits(&self, is_blocked: bool) {
        self.state.waits_for_socket(is_blocked, |written| self.io.borrow().taken(written));
    }
}

impl<I: Write + Liveness + Unpin> Write for ObservedIo<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.io.borrow_mut()).poll_write(cx, buf);
        if let Poll::Ready(Ok(count)) = written {
            self.frames.borrow_mut().sent(&buf[..count], &mut self.state.streams());
        }
        self.wrote(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.io.borrow_mut()).poll_write_vectored(cx, slices);
        if let Poll::Ready(Ok(mut left)) = written {
            let mut frames = self.frames.borrow_mut();
            let mut streams = self.state.streams();
            for slice in slices {
                let count = left.min(slice.len());
                frames.sent(&slice[..count], &mut streams);
                left -= count;
            }
        }
        self.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut *self.io.borrow_mut()).poll_flush(cx);
        self.waits(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut *self.io.borrow_mut()).poll_shutdown(cx);
        self.waits(shut.is_pending());
        shut
    }
}
