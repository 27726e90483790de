//! Streams that are split into two halves, without a lock: both halves stay on the loop's thread.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use super::byte_stream::{ByteStream, StreamIo, read_methods, write_methods};
use super::stream::Stream;
use super::tcp::TcpStream;
use super::unix::UnixStream;

read_methods!(ReadHalf<'_>, OwnedReadHalf);
write_methods!(WriteHalf<'_>, OwnedWriteHalf);

/// The reading half of a stream, which it borrows. Made by a stream's `split`.
#[derive(Debug)]
pub struct ReadHalf<'a>(&'a StreamIo);

/// The writing half of a stream, which it borrows. Made by a stream's `split`. Dropping it does not
/// shut the write side down.
#[derive(Debug)]
pub struct WriteHalf<'a>(&'a StreamIo);

/// The reading half of a stream, made by a stream's `into_split`.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct OwnedReadHalf(Rc<Stream>);

/// The writing half of a stream, made by a stream's `into_split`. Dropping it shuts the write side
/// down. A forked child does not do this, because the connection belongs to the parent.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    /// Present until it is reunited.
    stream: Option<Rc<Stream>>,
}

macro_rules! split_methods {
    ($($type:ident),*) => { $(
        impl $type {
            /// Borrows the stream as a half to read and a half to write. Both can be used at the
            /// same time, without a lock.
            pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
                (ReadHalf(self.io()), WriteHalf(self.io()))
            }

            /// Splits the stream into halves that different tasks of this loop may own. Dropping
            /// the write half shuts the write side down. The socket closes when both halves are
            /// dropped.
            #[must_use]
            pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
                let stream = Rc::new(Stream::from(self));
                (OwnedReadHalf(stream.clone()), OwnedWriteHalf { stream: Some(stream) })
            }
        }
    )* };
}
split_methods!(TcpStream, UnixStream, Stream);

impl OwnedReadHalf {
    pub(super) fn stream(&self) -> &Stream {
        &self.0
    }

    /// See [`Stream::is_broken`].
    #[doc(hidden)]
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.0.is_broken()
    }

    /// Joins the two halves of one stream again.
    ///
    /// # Errors
    /// The halves belong to different streams. The error returns both.
    pub fn reunite(self, mut write: OwnedWriteHalf) -> Result<Stream, ReuniteError> {
        match write.stream.take() {
            Some(other) if Rc::ptr_eq(&self.0, &other) => {
                drop(other);
                Ok(Rc::try_unwrap(self.0).expect("there are only two halves"))
            }
            other => {
                write.stream = other;
                Err(ReuniteError(self, write))
            }
        }
    }
}

impl AsFd for OwnedReadHalf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl OwnedWriteHalf {
    pub(super) fn stream(&self) -> &Stream {
        self.stream.as_ref().expect("present until it is reunited")
    }

    /// Tells the peer that no more bytes follow.
    ///
    /// # Errors
    /// Kernel errors. It is not an error if the connection is already gone.
    pub fn shutdown(&self) -> io::Result<()> {
        self.io().shutdown(Shutdown::Write)
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.io().end_writing();
        }
    }
}

/// The error of `reunite`: the halves belong to different streams.
#[derive(Debug, thiserror::Error)]
#[error("these are halves of two different streams")]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl ByteStream for ReadHalf<'_> {
    fn io(&self) -> &StreamIo {
        self.0
    }
}

impl ByteStream for WriteHalf<'_> {
    fn io(&self) -> &StreamIo {
        self.0
    }
}

impl ByteStream for OwnedReadHalf {
    fn io(&self) -> &StreamIo {
        self.0.io()
    }
}

impl ByteStream for OwnedWriteHalf {
    fn io(&self) -> &StreamIo {
        self.stream().io()
    }
}
