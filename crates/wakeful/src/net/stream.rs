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
/// *Threads*: Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Has the kernel reported that nothing can be written any more: a reset, a peer that did not
    /// answer, a Unix socket's peer that has closed? An end of stream alone is none. It costs no
    /// system call. For servers that neither read nor write for a while.
    #[doc(hidden)]
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.io().is_broken()
    }

    /// The next read asks the kernel, also where nothing was reported since the last one. What came
    /// during this turn of the loop is seen by no other read. For clients that are about to send
    /// what must not be lost.
    #[doc(hidden)]
    pub fn ask_anew(&self) {
        self.io().ask_anew();
    }

    /// How many bytes were written and have not come to the other end. A close with something
    /// unread would reset the connection, and the kernel forget them. One system call. For servers
    /// that end a connection.
    ///
    /// # Errors
    /// The kernel's.
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
