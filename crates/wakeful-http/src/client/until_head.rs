//! What a server sends before the head of a response: any number of 1xx heads.
//!
//! hyper reads and drops them. If a server never stops sending them, its request never ends. So the
//! number of bytes before the head is bounded here, and the number in one poll by
//! [`ReadRation`](crate::read_ration::ReadRation).

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor};

/// The size of the buffer for one read. It is needed because bytes in hyper's own buffer could only
/// be read, to count them, by unsafe code.
const SCRATCH: usize = 8 * 1024;
/// The bound, in multiples of the largest header of a response.
const HEADERS: usize = 4;

/// Counts the bytes on one HTTP/1.1 connection until a response's head.
#[derive(Default)]
pub(super) struct UntilHead {
    /// How many bytes may come. `None`: no head is awaited.
    max: Cell<Option<usize>>,
    /// How many bytes have come.
    received: Cell<usize>,
}

impl UntilHead {
    pub(super) fn begin(&self, max_header_size: usize) {
        self.max.set(Some(max_header_size.saturating_mul(HEADERS)));
        self.received.set(0);
    }

    pub(super) fn end(&self) {
        self.max.set(None);
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.max.get().is_some()
    }

    /// Reads, and counts the bytes.
    #[inline(never)]
    pub(super) fn poll_read(
        &self,
        io: &mut (impl Read + Unpin),
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let (max, received) = (self.max.get().unwrap_or(usize::MAX), self.received.get());
        if received >= max {
            let text = format!("more than {max} bytes of 1xx responses came before the response");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        let mut scratch = [MaybeUninit::uninit(); SCRATCH];
        let room = SCRATCH.min(buf.remaining());
        let mut read = ReadBuf::uninit(&mut scratch[..room]);
        ready!(Pin::new(io).poll_read(cx, read.unfilled()))?;
        buf.put_slice(read.filled());
        self.received.set(received + read.filled().len());
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::read_ration::{AT_ONCE, ReadRation};

    /// A transport that always has more to read.
    struct Endless;

    impl Read for Endless {
        fn poll_read(
            self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
            mut buf: ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            buf.put_slice(&vec![0; buf.remaining()]);
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn what_never_ends_is_read_in_bounded_parts_up_to_an_error() {
        const MAX_HEADER_SIZE: usize = 100_000;
        let (until_head, ration) = (UntilHead::default(), ReadRation::default());
        until_head.begin(MAX_HEADER_SIZE);
        let (mut received, mut parts) = (0, Vec::new());
        // If a read did not wake its task, this test would hang.
        let error = futures_lite::future::block_on(poll_fn(|cx| {
            parts.push(0);
            loop {
                let mut space = [0; 3 * SCRATCH];
                let mut buf = ReadBuf::new(&mut space);
                let read = ration.poll_read(cx, buf.unfilled(), |cx, buf| {
                    until_head.poll_read(&mut Endless, cx, buf)
                });
                if let Err(error) = ready!(read) {
                    return Poll::Ready(error);
                }
                received += buf.filled().len();
                *parts.last_mut().unwrap() += buf.filled().len();
            }
        }));
        assert!(parts.iter().all(|part| *part < AT_ONCE + SCRATCH), "{parts:?}");
        let max = HEADERS * MAX_HEADER_SIZE;
        assert!((max..max + SCRATCH).contains(&received), "{received}");
        assert!(error.to_string().contains("more than 400000 bytes"), "{error}");
    }
}
