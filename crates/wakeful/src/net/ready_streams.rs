//! The readiness of streams and of their halves, and single attempts to read and write.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use super::byte_stream::ByteStream;
use super::ready_methods::{
    readable_methods, ready_methods, try_read_methods, try_write_methods, writable_methods,
};
use super::split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use super::stream::Stream;
use super::tcp::TcpStream;
use super::unix::UnixStream;
use crate::driver::interest::{Interest, Ready};
use crate::driver::registered::Registered;
use crate::readiness::Wait;
use crate::task::{consume_budget, coop};

ready_methods!(TcpStream, UnixStream, Stream);
try_read_methods!(TcpStream, UnixStream, Stream);
try_write_methods!(TcpStream, UnixStream, Stream);

readable_methods!(ReadHalf<'_>, OwnedReadHalf);
try_read_methods!(ReadHalf<'_>, OwnedReadHalf);

writable_methods!(WriteHalf<'_>, OwnedWriteHalf);
try_write_methods!(WriteHalf<'_>, OwnedWriteHalf);

/// The socket that all stream types and their halves have.
trait Socket: ByteStream {
    fn socket(&self) -> &Registered<OwnedFd> {
        self.io().socket()
    }
}

impl<T: ByteStream> Socket for T {}
