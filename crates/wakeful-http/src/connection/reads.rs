//! What is read for hyper, as far as framing asks.

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
        // What hyper lends to read into can be read back by unsafe code only.
        self.loop_state().with_scratch(|scratch| {
            let room = scratch.len().min(buf.remaining());
            let mut read = ReadBuf::new(&mut scratch[..room]);
            ready!(io.poll_read(cx, read.unfilled()))?;
            framing.borrow_mut().feed(read.filled());
            buf.put_slice(read.filled());
            Poll::Ready(Ok(()))
        })
    }

    /// What is read next begins with a request; some of it may have been read before.
    pub(crate) fn reads_anew(&self) {
        if let Some(framing) = &self.framing {
            framing.replace(Framing::default());
        }
    }

    /// Can it be understood in one way only where the request ends that hyper has read? To be asked
    /// once for each.
    pub(crate) fn is_framing_clear(&self) -> bool {
        self.framing.as_ref().is_none_or(|framing| framing.borrow_mut().next())
    }
}
