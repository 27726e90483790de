//! Which HTTP a connection speaks, found out by its first bytes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use wakeful::net::Stream;

use crate::read::poll_read;
use crate::tls::TlsStream;

/// What an HTTP/2 client begins with (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// Reads, behind what was read on another loop, until the bytes can only be one of the two, and
/// gives back what it has read. `None`: the peer closed before.
pub(crate) async fn detect<IO: Read + Unpin>(
    stream: &mut IO,
    unread: &[u8],
) -> io::Result<Option<(Protocol, Bytes)>> {
    let mut start = BytesMut::from(unread);
    loop {
        if let Some(protocol) = decide(&start) {
            return Ok(Some((protocol, start.freeze())));
        }
        if poll_fn(|cx| poll_append(stream, cx, &mut start)).await? == 0 {
            return Ok(None);
        }
    }
}

/// Reads as much as a small request has: usually one read, and hyper's first one brings nothing
/// new. While it waits, there is no buffer.
fn poll_append<IO: Read + Unpin>(
    stream: &mut IO,
    cx: &mut Context<'_>,
    to: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    let mut buf = [0; 1024];
    let count = ready!(poll_read(stream, cx, &mut buf))?;
    to.extend_from_slice(&buf[..count]);
    Poll::Ready(Ok(count))
}

fn decide(start: &[u8]) -> Option<Protocol> {
    let known = start.len().min(PREFACE.len());
    if start[..known] != PREFACE[..known] {
        Some(Protocol::Http1)
    } else if known == PREFACE.len() {
        Some(Protocol::Http2)
    } else {
        None
    }
}

/// A stream whose first bytes have been read and are read again.
#[derive(Debug)]
pub(crate) struct Rewound<IO = Stream> {
    pub(crate) start: Bytes,
    pub(crate) stream: IO,
}

/// A connection of which the kernel may say that nobody is at its other end, though nothing is read
/// or written.
pub(crate) trait Ends {
    /// It costs no system call. A client that has ended only its own side is there.
    fn is_gone(&self) -> bool;
}

impl Ends for Stream {
    fn is_gone(&self) -> bool {
        self.is_broken()
    }
}

impl<IO: Ends> Ends for TlsStream<IO> {
    fn is_gone(&self) -> bool {
        self.get_ref().is_gone()
    }
}

impl<IO: Ends> Ends for Rewound<IO> {
    fn is_gone(&self) -> bool {
        self.stream.is_gone()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_differing_byte_decides() {
        assert_eq!(decide(b"GET / HTTP/1.1\r\n"), Some(Protocol::Http1));
        assert_eq!(decide(b"POST"), Some(Protocol::Http1));
        assert_eq!(decide(b"P"), None);
        assert_eq!(decide(b"PRI * HTTP/1.1\r\n"), Some(Protocol::Http1));
        assert_eq!(decide(&PREFACE[..PREFACE.len() - 1]), None);
        assert_eq!(decide(PREFACE), Some(Protocol::Http2));
        assert_eq!(decide(&[PREFACE, b"more"].concat()), Some(Protocol::Http2));
    }
}
