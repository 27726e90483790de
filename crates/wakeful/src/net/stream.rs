//! A stream over TCP or over a Unix socket.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};

use super::byte_stream::{ByteStream, StreamIo, read_methods, stream_methods, write_methods};
use super::tcp::TcpStream;
use super::unix::UnixStream;
use crate::priority::Priority;
use crate::sys::unsent::unsent;

read_methods!(Stream);
write_methods!(Stream);
stream_methods!(Stream);

/// A TCP or a Unix stream, for servers that listen on both.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Returns whether the kernel has reported that nothing can be written any more: a reset, a
    /// peer that did not answer, or a Unix socket's peer that has closed. An end of stream alone
    /// does not count. It makes no system call. It is for servers that neither read nor write for a
    /// while.
    #[doc(hidden)]
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.io().is_broken()
    }

    /// Makes the next read ask the kernel, even if no event was reported since the last read. Other
    /// reads do not see bytes that came during this turn of the loop. It is for clients that are
    /// about to send data that must not be lost.
    #[doc(hidden)]
    pub fn ask_anew(&self) {
        self.io().ask_anew();
    }

    /// Returns how many written bytes have not yet reached the other end. If the connection is
    /// closed with unread bytes, the kernel resets it and discards those written bytes. It makes
    /// one system call. It is for servers that end a connection.
    ///
    /// # Errors
    /// Kernel errors.
    #[doc(hidden)]
    pub fn unsent(&self) -> io::Result<usize> {
        unsent(self.as_fd())
    }
}

impl ByteStream for Stream {
    #[inline]
    fn io(&self) -> &StreamIo {
        match self {
            Self::Tcp(stream) => stream.io(),
            Self::Unix(stream) => stream.io(),
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Self {
        Self::Unix(stream)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io().fd()
    }
}
