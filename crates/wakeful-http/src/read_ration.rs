//! How much is read for hyper before others on the loop have their turn.
//!
//! Some bytes are neither a head nor a body: a chunk's size may have any number of zeros, or of
//! spaces after it, and a client may get any number of 1xx responses. hyper reads them in one poll,
//! for as long as more come, and takes far longer for them than the kernel. So the task's budget of
//! operations is too much for one poll.

use std::cell::Cell;
use std::io;
use std::task::{Context, Poll};

use hyper::rt::ReadBufCursor;

/// When reads had room for so many bytes, others on the loop have their turn.
pub(crate) const AT_ONCE: usize = 64 * 1024;

/// Of a connection.
#[derive(Debug, Default)]
pub(crate) struct ReadRation {
    /// How much room the reads had since one of them had to wait.
    given: Cell<usize>,
}

impl ReadRation {
    /// Reads by `read`. If much was read and no read had to wait, it is pending, and the task
    /// is woken.
    #[inline]
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
        read: impl FnOnce(&mut Context<'_>, ReadBufCursor<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        let given = self.given.get();
        if given >= AT_ONCE {
            self.given.set(0);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let room = buf.remaining();
        let polled = read(cx, buf);
        self.given.set(if polled.is_ready() { given + room } else { 0 });
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper::rt::ReadBuf;

    use super::*;

    #[test]
    fn what_never_waits_is_read_in_bounded_parts() {
        const ROOM: usize = 8 * 1024;
        let ration = ReadRation::default();
        let mut parts = Vec::new();
        // A read that does not wake its task would hang here.
        futures_lite::future::block_on(poll_fn(|cx| {
            parts.push(0);
            while parts.len() < 4 {
                let mut space = [0; ROOM];
                let mut buf = ReadBuf::new(&mut space);
                let polled = ration.poll_read(cx, buf.unfilled(), |_, mut buf| {
                    buf.put_slice(&[0; ROOM]);
                    Poll::Ready(Ok(()))
                });
                std::task::ready!(polled).unwrap();
                *parts.last_mut().unwrap() += ROOM;
            }
            Poll::Ready(())
        }));
        assert_eq!(parts, [AT_ONCE, AT_ONCE, AT_ONCE, 0]);
    }
}
