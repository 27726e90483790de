//! The user's end of an upgraded HTTP/2 stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

use super::stream_link::StreamLink;
use super::upgraded::Io;

pub(super) struct StreamIo {
    io: hyper::upgrade::Upgraded,
    link: StreamLink,
}

impl StreamIo {
    pub(super) fn new(io: hyper::upgrade::Upgraded, link: StreamLink) -> Self {
        Self { io, link }
    }

    fn unless_lost(&self) -> io::Result<()> {
        if !self.link.has_lost_connection() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, "a panic has ended this connection"))
    }
}

impl Drop for StreamIo {
    fn drop(&mut self) {
        self.link.leave();
    }
}

/// The drop announces the end of the stream.
impl Io for StreamIo {
    fn abort(&mut self) {
        self.link.cut();
    }

    fn may_look_ended(&self) -> bool {
        true
    }

    fn poll_check_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A poll of hyper's task sees the reset, and ends it. This does not have to be so yet.
        let has_ended = ready!(self.link.poll_task_has_looked(cx));
        self.unless_lost()?;
        if !has_ended {
            return Poll::Ready(Ok(()));
        }
        // This fails unless the user has shut the stream down.
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl Read for StreamIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // h2 panics if its lock is poisoned.
        self.unless_lost()?;
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        if polled.is_pending() {
            self.link.register_reader(cx);
            self.unless_lost()?;
        }
        polled
    }
}

impl Write for StreamIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
