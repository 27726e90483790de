//! What all streams share, and halves of them: reading and writing.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendFlags};

use crate::driver::registered::Registered;
use crate::driver::source::Direction;
use crate::priority::Priority;
#[cfg(feature = "faults")]
use crate::sys::faults;
use crate::sys::uninit::{self, Read, ReadBuffer, ReadCall};
use crate::task::coop;

/// The kernel refuses more slices in one call (`UIO_MAXIOV`). The rest is left for the next call.
const MAX_SLICES: usize = 1024;

/// Slices of no more than this many bytes in all are copied into one. `send` takes 65 ns less than
/// `sendmsg` with two slices (a response's header and its short body), and copying 1 KiB takes less
/// than half of that.
const GATHERED: usize = 1024;
/// Most responses to a request without a body are shorter.
const SHORT: usize = 256;

/// A connected stream socket on its loop.
#[derive(Debug)]
pub(crate) struct StreamIo {
    socket: Registered<OwnedFd>,
    read_call: ReadCall,
}

impl StreamIo {
    pub(super) fn new(fd: OwnedFd, read_call: ReadCall) -> io::Result<Self> {
        Ok(Self { socket: super::register(fd)?, read_call })
    }

    /// Like [`new`](Self::new), for a stream that comes from another loop. An error gives the
    /// descriptor back.
    pub(super) fn attach(
        fd: OwnedFd,
        read_call: ReadCall,
        priority: Priority,
    ) -> Result<Self, (OwnedFd, io::Error)> {
        Ok(Self { socket: super::attach(fd, priority)?, read_call })
    }

    #[inline]
    pub(crate) fn poll_read<B: ReadBuffer + ?Sized>(
        &self,
        cx: &mut Context<'_>,
        buf: &mut B,
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_proceed(cx));
        let room = buf.room();
        if room == 0 {
            coop::made_progress();
            return Poll::Ready(Ok(0));
        }
        let read =
            ready!(self.socket.poll_io(Direction::Read, cx, |fd| {
                uninit::read(fd.as_fd(), self.read_call, buf)
            }));
        coop::made_progress();
        Poll::Ready(Ok(self.after_read(read?, room)))
    }

    pub(super) fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let read = self
            .socket
            .attempt(Direction::Read, |fd| uninit::read(fd.as_fd(), self.read_call, &mut *buf))?;
        Ok(self.after_read(read, buf.len()))
    }

    /// Unlike a plain read, a short one does not clear the readiness: the next attempt finds out
    /// whether there is more.
    pub(super) fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let length = bufs.len().min(MAX_SLICES);
        let bufs = &mut bufs[..length];
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Ok(0);
        }
        self.socket.attempt(Direction::Read, |fd| {
            let mut descriptors = RecvAncillaryBuffer::default();
            let flags = RecvFlags::CMSG_CLOEXEC;
            rustix::net::recvmsg(fd, bufs, &mut descriptors, flags).map(|message| message.bytes)
        })
    }

    #[inline]
    fn after_read(&self, read: Read, room: usize) -> usize {
        if read.count < room && !read.cut {
            self.socket.ended(Direction::Read);
        }
        read.count
    }

    /// Several tasks may peek at the same time.
    pub(super) async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        super::shared(&self.socket, Direction::Read, |fd| {
            rustix::net::recv(fd, &mut *buf, RecvFlags::PEEK).map(|(_, length)| length)
        })
        .await
    }

    /// Never raises SIGPIPE: a closed peer is an error.
    #[inline]
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, buf.len(), |fd| send(fd, buf))
    }

    /// Like [`poll_write`](Self::poll_write), but makes one attempt and never waits.
    pub(super) fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.try_send(buf.len(), |fd| send(fd, buf))
    }

    #[inline]
    pub(crate) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [one] = slices {
            return self.poll_write(cx, one);
        }
        let slices = &slices[..slices.len().min(MAX_SLICES)];
        let length = slices.iter().map(|slice| slice.len()).sum();
        // Clearing a buffer takes as long as copying into it, so short data gets a short buffer.
        if length <= SHORT {
            return self.poll_write_gathered::<SHORT>(cx, slices);
        }
        if length <= GATHERED {
            return self.poll_write_gathered::<GATHERED>(cx, slices);
        }
        self.poll_send(cx, length, |fd| send_slices(fd, slices))
    }

    /// Writes slices of at most `N` bytes in all.
    #[inline]
    fn poll_write_gathered<const N: usize>(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (mut gathered, mut length) = ([0; N], 0);
        for slice in slices {
            gathered[length..][..slice.len()].copy_from_slice(slice);
            length += slice.len();
        }
        self.poll_write(cx, &gathered[..length])
    }

    /// Like [`poll_write_vectored`](Self::poll_write_vectored), but makes one attempt and never
    /// waits.
    pub(super) fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let slices = &slices[..slices.len().min(MAX_SLICES)];
        let length = slices.iter().map(|slice| slice.len()).sum();
        self.try_send(length, |fd| send_slices(fd, slices))
    }

    #[inline]
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        length: usize,
        mut send: impl FnMut(&OwnedFd) -> Result<usize, Errno>,
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_proceed(cx));
        let sent = ready!(self.socket.poll_io(Direction::Write, cx, &mut send));
        coop::made_progress();
        Poll::Ready(Ok(self.after_send(sent?, length)))
    }

    fn try_send(
        &self,
        length: usize,
        send: impl FnMut(&OwnedFd) -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        let sent = self.socket.attempt(Direction::Write, send)?;
        Ok(self.after_send(sent, length))
    }

    #[inline]
    fn after_send(&self, sent: usize, length: usize) -> usize {
        if sent < length {
            self.socket.ended(Direction::Write);
        }
        sent
    }

    pub(super) fn socket(&self) -> &Registered<OwnedFd> {
        &self.socket
    }

    /// Waits for a connection in progress.
    pub(super) async fn connected(&self) -> io::Result<()> {
        // The socket counts as not ready until the kernel reports that it is.
        self.socket.would_block(Direction::Write);
        poll_fn(|cx| {
            self.socket.poll_io(Direction::Write, cx, |fd| {
                match rustix::net::sockopt::socket_error(fd)? {
                    Err(error) => Err(error),
                    // If there is no peer yet, the wake was in vain.
                    Ok(()) => match rustix::net::getpeername(fd) {
                        Err(Errno::NOTCONN) if !has_hung_up(fd) => Err(Errno::AGAIN),
                        result => result.map(|_| ()),
                    },
                }
            })
        })
        .await
    }

    /// Shuts one or both directions down. This never blocks, so it does not wait.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => rustix::net::Shutdown::Read,
            Shutdown::Write => rustix::net::Shutdown::Write,
            Shutdown::Both => rustix::net::Shutdown::Both,
        };
        match rustix::net::shutdown(self.socket.io(), how) {
            // The peer has reset the connection, so there is nothing left to shut down.
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the write side when its owner is dropped. A forked child does not, because its parent
    /// continues to write.
    pub(super) fn end_writing(&self) {
        if !self.socket.is_forked() {
            // An error means that the connection is gone, and then there is no peer to tell.
            let _ = self.shutdown(Shutdown::Write);
        }
    }

    /// Nothing is buffered here.
    pub(crate) fn poll_flush(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Shuts the write side down.
    pub(crate) fn poll_shutdown(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown(Shutdown::Write))
    }

    pub(crate) fn set_priority(&self, priority: Priority) -> io::Result<()> {
        self.socket.set_priority(priority)
    }

    pub(super) fn priority(&self) -> Priority {
        self.socket.priority()
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.socket.into_inner()
    }

    pub(super) fn ask_anew(&self) {
        self.socket.assume_ready(Direction::Read);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.socket.is_broken()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.io().as_fd()
    }

    /// The socket, for socket2's options.
    pub(super) fn options(&self) -> socket2::SockRef<'_> {
        socket2::SockRef::from(self.socket.io())
    }
}

/// Is the socket neither connected nor connecting? The kernel would not report that by another
/// event.
fn has_hung_up(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::empty())];
    let asked = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    asked.is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

#[inline]
fn send(fd: &OwnedFd, buf: &[u8]) -> Result<usize, Errno> {
    #[cfg(feature = "faults")]
    let buf = {
        faults::perhaps_reset(fd.as_fd());
        &buf[..faults::shorten(buf.len())]
    };
    rustix::net::send(fd, buf, SendFlags::NOSIGNAL).map_err(not_connected_yet)
}

fn send_slices(fd: &OwnedFd, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
    #[cfg(feature = "faults")]
    let slices = {
        faults::perhaps_reset(fd.as_fd());
        &slices[..faults::shorten(slices.len())]
    };
    rustix::net::sendmsg(fd, slices, &mut Default::default(), SendFlags::NOSIGNAL)
        .map_err(not_connected_yet)
}

/// EINPROGRESS means that the write could not travel with the request to connect
/// (`TCP_FASTOPEN_CONNECT`). It must wait for the connection, as after EAGAIN.
#[cold]
fn not_connected_yet(error: Errno) -> Errno {
    if error == Errno::INPROGRESS { Errno::AGAIN } else { error }
}

/// A type that is, or shares, one stream socket. Its implementors get the ecosystem's traits in
/// `io`.
pub(crate) trait ByteStream {
    fn io(&self) -> &StreamIo;
}

/// The methods that all stream types, and halves of them, have in common.
macro_rules! read_methods {
    ($($type:ty),*) => { $(
        impl $type {
            /// Reads available bytes, at least one, into `buf`, and returns their number. Returns 0
            /// if the peer has ended its side (or if `buf` is empty).
            ///
            /// # Cancel safety
            /// Cancel-safe: a call that was dropped before it returned has read nothing.
            ///
            /// # Errors
            /// Kernel errors, such as `ECONNRESET`; or the loop has ended.
            pub async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                poll_fn(|cx| self.io().poll_read(cx, buf)).await
            }

            /// Reads like `read`, but leaves the bytes in the socket: the next read returns them
            /// again. Several tasks may wait at once.
            ///
            /// # Cancel safety
            /// Cancel-safe.
            ///
            /// # Errors
            /// The same as for `read`.
            pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.io().peek(buf).await
            }
        }
    )* };
}

macro_rules! write_methods {
    ($($type:ty),*) => { $(
        impl $type {
            /// Writes as much of `buf` as the socket's buffer takes, at least one byte (unless
            /// `buf` is empty), and returns the number of bytes.
            ///
            /// # Cancel safety
            /// Cancel-safe: a call that was dropped before it returned has written nothing.
            ///
            /// # Errors
            /// Kernel errors, such as `EPIPE` (without a SIGPIPE) and `ECONNRESET`; or the loop has
            /// ended.
            pub async fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                poll_fn(|cx| self.io().poll_write(cx, buf)).await
            }

            /// Writes from several slices with one system call, and returns the number of bytes.
            /// Only the first 1,024 slices are used.
            ///
            /// # Cancel safety
            /// Cancel-safe, like `write`.
            ///
            /// # Errors
            /// The same as for `write`.
            pub async fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
                poll_fn(|cx| self.io().poll_write_vectored(cx, slices)).await
            }

            /// Writes all of `buf`.
            ///
            /// # Cancel safety
            /// Not cancel-safe: a call that was dropped before it returned may have written a part.
            ///
            /// # Errors
            /// The same as for `write`; `WriteZero` if the socket accepts no more bytes.
            pub async fn write_all(&mut self, mut buf: &[u8]) -> io::Result<()> {
                while !buf.is_empty() {
                    match self.write(buf).await? {
                        0 => return Err(io::ErrorKind::WriteZero.into()),
                        written => buf = &buf[written..],
                    }
                }
                Ok(())
            }
        }
    )* };
}

/// The methods of whole streams.
macro_rules! stream_methods {
    ($($type:ident),*) => { $(
        impl $type {
            /// Tells the peer that no more bytes follow, like `AsyncWriteExt::shutdown` of tokio
            /// and `AsyncWriteExt::close` of futures. It never waits.
            ///
            /// # Errors
            /// Kernel errors. It is not an error if the connection is already gone.
            pub async fn shutdown(&mut self) -> io::Result<()> {
                self.shutdown_side(Shutdown::Write)
            }

            /// Ends reading, writing, or both, like the standard library's `shutdown`.
            ///
            /// # Errors
            /// Kernel errors. It is not an error if the connection is already gone.
            pub fn shutdown_side(&self, side: Shutdown) -> io::Result<()> {
                self.io().shutdown(side)
            }

            /// Sets the priority: events of a high-priority socket are handled in the next turn,
            /// before all others, however many others are ready. The task that waits for the socket
            /// should also have high priority (see [`Priority`]).
            ///
            /// The first high-priority socket of a loop takes one more descriptor.
            /// [`IdlePolicy::KernelBusyPoll`](crate::IdlePolicy::KernelBusyPoll) does not poll
            /// high-priority sockets.
            ///
            /// # Errors
            /// Kernel errors (no descriptors are left; `max_user_watches` is reached), or the loop
            /// has ended. The priority is then unchanged.
            pub fn set_priority(&self, priority: Priority) -> io::Result<()> {
                self.io().set_priority(priority)
            }
        }
    )* };
}
pub(super) use {read_methods, stream_methods, write_methods};
