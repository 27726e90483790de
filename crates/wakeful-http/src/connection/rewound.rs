//! A stream whose first bytes were read before: to find out its protocol, or on another loop.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use wakeful::net::{Stream, TcpStream};

use super::liveness::Liveness;

/// A stream whose first bytes have been read and are read again.
#[derive(Debug)]
pub(crate) struct Rewound<IO = Stream> {
    pub(crate) start: Bytes,
    pub(crate) stream: IO,
}

impl<IO: Liveness> Liveness for Rewound<IO> {
    fn resets_at_close(&self) {
        self.stream.resets_at_close();
    }

    fn is_gone(&self) -> bool {
        self.stream.is_gone()
    }

    fn unsent(&self) -> usize {
        self.stream.unsent()
    }

    fn at_risk(&self) -> usize {
        self.stream.at_risk()
    }

    fn taken(&self, written: u64) -> i64 {
        self.stream.taken(written)
    }

    fn plain_tcp(&self) -> Option<&TcpStream> {
        self.stream.plain_tcp()
    }
}

impl<IO: Read + Unpin> Read for Rewound<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.start.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let count = self.start.len().min(buf.remaining());
        buf.put_slice(&self.start[..count]);
        self.start.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<IO: Write + Unpin> Write for Rewound<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
