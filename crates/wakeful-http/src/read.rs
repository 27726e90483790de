//! Reading by hyper's trait into initialised memory.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf};

/// Reads what is there, at least a byte. Returns 0 at the end.
pub(crate) async fn read<IO: Read + Unpin>(io: &mut IO, buf: &mut [u8]) -> io::Result<usize> {
    poll_fn(|cx| poll_read(io, cx, buf)).await
}

/// See [`read`].
pub(crate) fn poll_read<IO: Read + Unpin>(
    io: &mut IO,
    cx: &mut Context<'_>,
    buf: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut buf = ReadBuf::new(buf);
    ready!(Pin::new(io).poll_read(cx, buf.unfilled()))?;
    Poll::Ready(Ok(buf.filled().len()))
}
