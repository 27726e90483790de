use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::OFlags;

use super::fifo;
use super::pipe_io::PipeIo;
use crate::driver::interest::Interest;
use crate::readiness::Wait;

/// The writing end of a pipe.
///
/// A write to a pipe without a reader is an error (`BrokenPipe`). The kernel also raises SIGPIPE,
/// which Rust programs ignore by default.
///
/// ```
/// use wakeful::net::pipe;
///
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     let (mut sender, mut receiver) = pipe::pipe()?;
///     sender.write_all(b"hello").await?;
///     sender.shutdown().await?; // The reader sees the end.
///     let mut bytes = Vec::new();
///     receiver.read_to_end(&mut bytes).await?;
///     assert_eq!(bytes, b"hello");
///     Ok(())
/// })
/// # }
/// ```
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct Sender {
    io: PipeIo,
}

impl Sender {
    pub(super) fn of(fd: OwnedFd) -> io::Result<Self> {
        PipeIo::new(fd).map(|io| Self { io })
    }

    pub(crate) fn io(&mut self) -> &mut PipeIo {
        &mut self.io
    }

    /// Opens a FIFO for writing.
    ///
    /// The call opens the file on the calling thread, like [`std::fs::File::open`]. See
    /// [`Receiver::open`](super::Receiver::open) for an example.
    ///
    /// # Errors
    /// `ENXIO`: no process has opened the FIFO for reading; try again later. Kernel errors; `path`
    /// is not a FIFO; no loop runs on this thread.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::of(fifo::open(path.as_ref(), OFlags::WRONLY)?)
    }

    /// Puts an existing end of a pipe on this loop. It sets `O_NONBLOCK`, which affects all holders
    /// of this open file.
    ///
    /// # Errors
    /// `fd` is not a pipe; no loop runs on this thread; kernel errors.
    pub fn from_owned_fd(fd: OwnedFd) -> io::Result<Self> {
        fifo::expect_pipe(&fd)?;
        fifo::set_nonblocking(&fd, true)?;
        Self::of(fd)
    }

    /// Removes this end from the loop, and clears `O_NONBLOCK`. Use the result on another thread,
    /// or as the standard output of a child process (`Stdio::from`).
    ///
    /// # Errors
    /// This end is closed (by [`shutdown`](Self::shutdown)); kernel errors.
    pub fn into_blocking_fd(self) -> io::Result<OwnedFd> {
        let fd = self.io.into_fd()?;
        fifo::set_nonblocking(&fd, false)?;
        Ok(fd)
    }

    /// Writes as much of `buf` as the pipe takes, at least one byte (unless `buf` is empty), and
    /// returns the number of bytes. Up to 4,096 bytes (`PIPE_BUF`) are written as a whole.
    ///
    /// # Cancel safety
    /// Cancel-safe: a call that was dropped before it returned has written nothing.
    ///
    /// # Errors
    /// `BrokenPipe`: the pipe has no reader, or this end is closed. Kernel errors; the loop has
    /// ended.
    pub async fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.io.poll_write(cx, buf)).await
    }

    /// Writes from several slices with one system call, and returns the number of bytes. Only the
    /// first 1,024 slices are used.
    ///
    /// # Cancel safety
    /// Cancel-safe, like [`write`](Self::write).
    ///
    /// # Errors
    /// The same as for [`write`](Self::write).
    pub async fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        poll_fn(|cx| self.io.poll_write_vectored(cx, slices)).await
    }

    /// Writes all of `buf`.
    ///
    /// # Cancel safety
    /// Not cancel-safe: a call that was dropped before it returned may have written a part.
    ///
    /// # Errors
    /// The same as for [`write`](Self::write).
    pub async fn write_all(&mut self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match self.write(buf).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => buf = &buf[written..],
            }
        }
        Ok(())
    }

    /// Closes this end: the reader sees the end after it has read the rest. The `close` of futures'
    /// trait and the `shutdown` of tokio's do the same. It never waits.
    ///
    /// # Errors
    /// The call never returns an error.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.io.poll_shutdown(cx)).await
    }

    /// Waits until a write would return at once: the pipe has room, or has no reader. Several tasks
    /// may wait at once.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// This end is closed; the loop has ended.
    pub async fn writable(&self) -> io::Result<()> {
        Wait::new(self.io.pipe()?, Interest::WRITABLE).await.map(drop)
    }

    /// Writes as much of `buf` as the pipe takes, but does not wait. Returns the number of bytes.
    ///
    /// # Errors
    /// `WouldBlock`: the pipe has no room now. Otherwise, the same as for [`write`](Self::write).
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.io.try_write(buf)
    }

    /// Like [`try_write`](Self::try_write), from several slices with one system call. Only the
    /// first 1,024 slices are used.
    ///
    /// # Errors
    /// The same as for [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.io.try_write_vectored(slices)
    }
}
