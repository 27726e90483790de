//! Reading from one end of a pipe, and writing to the other.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::io::Errno;

use crate::driver::registered::Registered;
use crate::driver::source::Direction;
use crate::sys::uninit::{self, ReadBuffer, ReadCall};
use crate::task::coop;

/// The kernel refuses more slices in one call (`UIO_MAXIOV`).
const MAX_SLICES: usize = 1024;

/// An end of a pipe on its loop. Its descriptor does not block.
#[derive(Debug)]
pub(crate) struct PipeIo {
    /// `None`: `shutdown` has closed it.
    pipe: Option<Registered<OwnedFd>>,
}

impl PipeIo {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { pipe: Some(crate::net::register(fd)?) })
    }

    /// # Errors
    /// This end is closed.
    pub(super) fn pipe(&self) -> io::Result<&Registered<OwnedFd>> {
        let closed = || io::Error::new(io::ErrorKind::BrokenPipe, "this end of the pipe is closed");
        self.pipe.as_ref().ok_or_else(closed)
    }

    pub(super) fn into_fd(self) -> io::Result<OwnedFd> {
        self.pipe()?;
        Ok(self.pipe.map(Registered::into_inner).expect("it is not closed"))
    }

    /// Reads nothing until the kernel reports that there is something.
    pub(super) fn wait_first(&self) {
        if let Some(pipe) = &self.pipe {
            pipe.would_block(Direction::Read);
        }
    }

    pub(crate) fn poll_read<B: ReadBuffer + ?Sized>(
        &self,
        cx: &mut Context<'_>,
        buf: &mut B,
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_proceed(cx));
        if buf.room() == 0 {
            coop::made_progress();
            return Poll::Ready(Ok(0));
        }
        let pipe = self.pipe()?;
        // A short read does not show that there is no more, because a writer with `O_DIRECT` writes
        // packets, and a read returns one packet (pipe(2)).
        let read =
            ready!(pipe.poll_io(Direction::Read, cx, |fd| {
                uninit::read(fd.as_fd(), ReadCall::Any, buf)
            }));
        coop::made_progress();
        Poll::Ready(Ok(read?.count))
    }

    pub(super) fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.pipe()?.attempt(Direction::Read, |fd| rustix::io::read(fd, &mut *buf))
    }

    pub(super) fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let length = bufs.len().min(MAX_SLICES);
        let bufs = &mut bufs[..length];
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Ok(0);
        }
        self.pipe()?.attempt(Direction::Read, |fd| rustix::io::readv(fd, bufs))
    }

    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, buf.len(), |fd| rustix::io::write(fd, buf))
    }

    pub(crate) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let slices = &slices[..slices.len().min(MAX_SLICES)];
        let length = slices.iter().map(|slice| slice.len()).sum();
        self.poll_send(cx, length, |fd| rustix::io::writev(fd, slices))
    }

    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        length: usize,
        send: impl FnMut(&OwnedFd) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_proceed(cx));
        let pipe = self.pipe()?;
        let sent = ready!(pipe.poll_io(Direction::Write, cx, send));
        coop::made_progress();
        let sent = sent?;
        if sent < length {
            pipe.ended(Direction::Write);
        }
        Poll::Ready(Ok(sent))
    }

    pub(super) fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.pipe()?.attempt(Direction::Write, |fd| rustix::io::write(fd, buf))
    }

    pub(super) fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let slices = &slices[..slices.len().min(MAX_SLICES)];
        self.pipe()?.attempt(Direction::Write, |fd| rustix::io::writev(fd, slices))
    }

    /// Nothing is buffered here.
    pub(crate) fn poll_flush(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Closes this end, so that the reader sees the end.
    pub(crate) fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe = None;
        Poll::Ready(Ok(()))
    }
}
