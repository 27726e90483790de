//! Finds out the HTTP version of a connection by its first bytes.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use hyper::rt::Read;

use crate::connection::{PREFACE, Protocol};
use crate::read::poll_read;

/// Reads, after the bytes in `start`, until the bytes can only be one of the two protocols. What it
/// has read is in `start`, also if it is dropped. `None`: the peer closed before.
pub(crate) async fn detect<IO: Read + Unpin>(
    stream: &mut IO,
    start: &mut BytesMut,
) -> io::Result<Option<Protocol>> {
    loop {
        if let Some(protocol) = decide(start) {
            return Ok(Some(protocol));
        }
        if poll_fn(|cx| poll_append(stream, cx, start)).await? == 0 {
            return Ok(None);
        }
    }
}

/// Reads up to the size of a small request. Usually that is one read, and hyper's first read finds
/// nothing more. There is no buffer during the wait.
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
