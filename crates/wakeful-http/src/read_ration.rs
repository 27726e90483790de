//! How much is read for hyper, and for WebSockets, before other tasks on the loop run.
//!
//! Some bytes belong neither to a head nor to a body: a chunk's size may have any number of zeros,
//! or of spaces after it, a client may get any number of 1xx responses, and a WebSocket's message
//! may have any number of empty frames. hyper and tungstenite read such bytes in one poll, as long
//! as more of them come, and parse them far more slowly than the kernel delivers them. The task's
//! budget of operations would allow too much of that in one poll.

use std::cell::Cell;
use std::io;
use std::task::{Context, Poll};

use hyper::rt::ReadBufCursor;

/// After reads with room for this many bytes, other tasks on the loop run.
pub(crate) const AT_ONCE: usize = 64 * 1024;

/// The ration of one connection.
#[derive(Debug, Default)]
pub(crate) struct ReadRation {
    /// How much room the reads have had since the last read that was pending.
    given: Cell<usize>,
}

impl ReadRation {
    /// Reads with `read`. After [`AT_ONCE`] bytes of room without a read that had to wait, returns
    /// `Pending` once and wakes the task.
    #[inline]
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
        read: impl FnOnce(&mut Context<'_>, ReadBufCursor<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        self.give(buf.remaining(), cx, |cx| read(cx, buf))
    }

    /// Like [`poll_read`](Self::poll_read), for any `read` with room for `room` bytes.
    #[inline]
    pub(crate) fn give<R>(
        &self,
        room: usize,
        cx: &mut Context<'_>,
        read: impl FnOnce(&mut Context<'_>) -> Poll<R>,
    ) -> Poll<R> {
        let given = self.given.get();
        if given >= AT_ONCE {
            self.given.set(0);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = read(cx);
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
        // If a read did not wake its task, this test would hang.
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
