use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::OFlags;

use super::fifo;
use super::pipe_io::PipeIo;
use crate::driver::interest::Interest;
use crate::readiness::Wait;

/// The reading end of a pipe.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct Receiver {
    io: PipeIo,
}

impl Receiver {
    pub(super) fn of(fd: OwnedFd) -> io::Result<Self> {
        PipeIo::new(fd).map(|io| Self { io })
    }

    pub(crate) fn io(&mut self) -> &mut PipeIo {
        &mut self.io
    }

    /// Opens a FIFO for reading. The call does not wait for a writer, but the first read does.
    ///
    /// A read returns 0 when the last writer has left. If another writer comes later, reads return
    /// its bytes. With [`open_endless`](Self::open_endless) no read returns 0.
    ///
    /// The call opens the file on the calling thread, like [`std::fs::File::open`].
    ///
    /// ```
    /// use wakeful::net::pipe::{Receiver, Sender};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("wakeful-fifo-{}", std::process::id()));
    /// # let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    /// # rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode)?;
    /// wakeful::block_on(async {
    ///     let mut receiver = Receiver::open(&path)?;
    ///     let mut sender = Sender::open(&path)?;
    ///     sender.write_all(b"hello").await?;
    ///     let mut buf = [0; 16];
    ///     assert_eq!(receiver.read(&mut buf).await?, 5);
    /// #   std::fs::remove_file(&path)?;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Kernel errors; `path` is not a FIFO; no loop runs on this thread.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let this = Self::of(fifo::open(path.as_ref(), OFlags::RDONLY)?)?;
        // As long as there was no writer, the kernel would report the end of the file.
        this.io.wait_first();
        Ok(this)
    }

    /// Opens a FIFO for reading, and keeps it open for writing as well. So there is always a
    /// writer, and no read returns 0.
    ///
    /// # Errors
    /// The same as for [`open`](Self::open).
    pub fn open_endless(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::of(fifo::open(path.as_ref(), OFlags::RDWR)?)
    }

    /// Puts an existing end of a pipe on this loop. It sets `O_NONBLOCK`, which affects all holders
    /// of this open file. If no writer has opened a FIFO yet, a read may return 0, because the
    /// kernel reports this as the end.
    ///
    /// # Errors
    /// `fd` is not a pipe; no loop runs on this thread; kernel errors.
    pub fn from_owned_fd(fd: OwnedFd) -> io::Result<Self> {
        fifo::expect_pipe(&fd)?;
        fifo::set_nonblocking(&fd, true)?;
        Self::of(fd)
    }

    /// Removes this end from the loop, and clears `O_NONBLOCK`. Use the result on another thread,
    /// or as the standard input of a child process (`Stdio::from`).
    ///
    /// # Errors
    /// Kernel errors.
    pub fn into_blocking_fd(self) -> io::Result<OwnedFd> {
        let fd = self.io.into_fd()?;
        fifo::set_nonblocking(&fd, false)?;
        Ok(fd)
    }

    /// Reads available bytes, at least one, into `buf`, and returns their number. Returns 0 if all
    /// writers have left (or if `buf` is empty).
    ///
    /// # Cancel safety
    /// Cancel-safe: a call that was dropped before it returned has read nothing.
    ///
    /// # Errors
    /// Kernel errors; the loop has ended.
    pub async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.io.poll_read(cx, buf)).await
    }

    /// Reads all bytes until the last writer has left, and appends them to `bytes`. Returns their
    /// number.
    ///
    /// # Cancel safety
    /// Not cancel-safe: if cancelled, `bytes` contains what was read until then.
    ///
    /// # Errors
    /// The same as for [`read`](Self::read).
    pub async fn read_to_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        // The default capacity of a pipe.
        let mut chunk = vec![0; 64 << 10];
        let start = bytes.len();
        loop {
            match self.read(&mut chunk).await? {
                0 => return Ok(bytes.len() - start),
                read => bytes.extend_from_slice(&chunk[..read]),
            }
        }
    }

    /// Waits until a read would return at once: with data, with the end, or with an error. Several
    /// tasks may wait at once.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    ///
    /// # Errors
    /// The loop has ended.
    pub async fn readable(&self) -> io::Result<()> {
        Wait::new(self.io.pipe()?, Interest::READABLE).await.map(drop)
    }

    /// Reads available bytes into `buf`, but does not wait. Returns their number. Returns 0 if all
    /// writers have left (or if `buf` is empty). For a FIFO of
    /// [`from_owned_fd`](Self::from_owned_fd), 0 may also mean that no writer has come yet.
    ///
    /// # Errors
    /// `WouldBlock`: the pipe is empty, or no writer has opened it yet. Kernel errors.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.io.try_read(buf)
    }

    /// Like [`try_read`](Self::try_read), into several slices with one system call. Only the first
    /// 1,024 slices are used.
    ///
    /// # Errors
    /// The same as for [`try_read`](Self::try_read).
    pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.io.try_read_vectored(bufs)
    }
}
