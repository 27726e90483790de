//! Reads for hyper, and shows the bytes to `framing` if ambiguous lengths are refused.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor};

use super::state::ConnectionState;
use crate::framing::Framing;

impl ConnectionState {
    /// Reads for hyper.
    #[inline(always)]
    pub(crate) fn poll_read<IO: Read>(
        &self,
        io: Pin<&mut IO>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(framing) = &self.framing else { return io.poll_read(cx, buf) };
        // The read goes to a scratch buffer first, because bytes in the buffer that hyper lends can
        // only be read back by unsafe code.
        self.loop_state().with_scratch(|scratch| {
            let room = scratch.len().min(buf.remaining());
            let mut read = ReadBuf::new(&mut scratch[..room]);
            ready!(io.poll_read(cx, read.unfilled()))?;
            framing.borrow_mut().feed(read.filled());
            buf.put_slice(read.filled());
            Poll::Ready(Ok(()))
        })
    }

    /// Notes that the bytes that are read next begin a request. Some of them may have been read
    /// before.
    pub(crate) fn reads_anew(&self) {
        if let Some(framing) = &self.framing {
            framing.replace(Framing::default());
        }
    }

    /// Is the end of the request that hyper has just read unambiguous, so that no other reader
    /// could see it elsewhere? Must be called once for each request.
    pub(crate) fn is_framing_clear(&self) -> bool {
        self.framing.as_ref().is_none_or(|framing| framing.borrow_mut().next())
    }
}
