//! The methods by which Unix sockets of every kind pass descriptors.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::byte_stream::ByteStream;
use super::passing::{Kind, check, receive, send};
use super::split::{OwnedReadHalf, OwnedWriteHalf};
use super::stream::Stream;
use super::unix::UnixStream;
use super::unix_datagram::UnixDatagram;
use super::unix_seqpacket::UnixSeqpacket;
use crate::driver::registered::Registered;
use crate::driver::source::Direction;
use crate::task::consume_budget;
use crate::task::coop::checked;

trait Passes {
    const KIND: Kind;

    /// # Errors
    /// It is no Unix socket.
    fn registered(&self) -> io::Result<&Registered<OwnedFd>>;
}

impl Passes for UnixStream {
    const KIND: Kind = Kind::Bytes;

    fn registered(&self) -> io::Result<&Registered<OwnedFd>> {
        Ok(ByteStream::io(self).socket())
    }
}

impl Passes for OwnedReadHalf {
    const KIND: Kind = Kind::Bytes;

    fn registered(&self) -> io::Result<&Registered<OwnedFd>> {
        of_unix(self.stream())
    }
}

impl Passes for OwnedWriteHalf {
    const KIND: Kind = Kind::Bytes;

    fn registered(&self) -> io::Result<&Registered<OwnedFd>> {
        of_unix(self.stream())
    }
}

/// An error for TCP: the kernel would send the bytes and forget the descriptors.
fn of_unix(stream: &Stream) -> io::Result<&Registered<OwnedFd>> {
    match stream {
        Stream::Unix(stream) => stream.registered(),
        Stream::Tcp(_) => {
            let why = "descriptors pass over Unix sockets only, and this is a half of a TCP stream";
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}

impl Passes for UnixDatagram {
    const KIND: Kind = Kind::Messages;

    fn registered(&self) -> io::Result<&Registered<OwnedFd>> {
        Ok(self.io().socket())
    }
}

impl Passes for UnixSeqpacket {
    const KIND: Kind = Kind::Messages;

    fn registered(&self) -> io::Result<&Registered<OwnedFd>> {
        Ok(self.io().socket())
    }
}

macro_rules! sending_methods {
    ($($type:ident),*) => { $(
        impl $type {
            /// Sends `buf` together with descriptors, and returns how many bytes of `buf` were
            /// sent. The receiver gets duplicates of the descriptors (`SCM_RIGHTS`, unix(7)), with
            /// the first byte of `buf`. One call sends at most 253 descriptors. A stream may accept
            /// only a part of `buf`, but then it has accepted all descriptors: write the rest
            /// without them.
            ///
            /// Several tasks may wait at once.
            ///
            /// # Errors
            /// `InvalidInput`: there are more than 253 descriptors; `buf` is empty, on a stream; or
            /// this is a half of a TCP stream. Kernel errors: `EMSGSIZE` for a message that is too
            /// long, `ETOOMANYREFS` if more descriptors of this user are in flight than
            /// `RLIMIT_NOFILE`. After an error nothing was sent.
            ///
            /// # Cancel safety
            /// A call that was dropped before it returned has sent nothing. The caller keeps its
            /// descriptors. If the message is never received, the kernel closes the duplicates when
            /// the receiver's socket closes.
            ///
            /// # Examples
            /// ```
            /// use std::io::{Read, Write};
            /// use std::os::fd::AsFd;
            ///
            /// use wakeful::net::UnixStream;
            ///
            /// # fn main() -> std::io::Result<()> {
            /// # wakeful::block_on(async {
            /// let (ours, theirs) = UnixStream::pair()?;
            /// let (mut reader, writer) = std::io::pipe()?;
            /// ours.send_with_fds(b"a pipe", &[writer.as_fd()]).await?;
            /// drop(writer);
            ///
            /// let (mut buf, mut fds) = ([0; 64], Vec::new());
            /// assert_eq!(theirs.recv_with_fds(&mut buf, &mut fds).await?, 6);
            /// let received = fds.pop().expect("one was sent");
            /// std::fs::File::from(received).write_all(b"hello")?;
            /// let mut text = String::new();
            /// reader.read_to_string(&mut text)?;
            /// assert_eq!(text, "hello");
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            pub async fn send_with_fds(
                &self,
                buf: &[u8],
                fds: &[BorrowedFd<'_>],
            ) -> io::Result<usize> {
                checked(check(Self::KIND, buf, fds)).await?;
                let socket = self.registered()?;
                super::shared(socket, Direction::Write, |fd| send(fd, buf, fds, None)).await
            }

            /// Like [`send_with_fds`](Self::send_with_fds), but does not wait.
            ///
            /// # Errors
            /// `WouldBlock`: there is no room now. Otherwise, the same as for
            /// [`send_with_fds`](Self::send_with_fds).
            pub fn try_send_with_fds(
                &self,
                buf: &[u8],
                fds: &[BorrowedFd<'_>],
            ) -> io::Result<usize> {
                check(Self::KIND, buf, fds)?;
                self.registered()?.attempt(Direction::Write, |fd| send(fd, buf, fds, None))
            }
        }
    )* };
}

macro_rules! receiving_methods {
    ($($type:ident),*) => { $(
        impl $type {
            /// Receives bytes into `buf`, and returns how many. Appends to `fds` the descriptors
            /// that arrived with these bytes, at most 253. They are close-on-exec. From a stream,
            /// one call receives the bytes of at most one message with descriptors, and returns 0
            /// at the end. From a message socket, bytes that do not fit into `buf` are lost, but no
            /// descriptors are lost.
            ///
            /// Other receiving methods close the descriptors that arrive with the bytes. This one
            /// makes two system calls: the first looks at the message, the second takes it. So no
            /// other process may read from the socket. Several tasks of the loop may wait at once.
            ///
            /// # Errors
            /// `InvalidInput`: this is a half of a TCP stream. Kernel errors: `EMFILE` or `ENFILE`
            /// if this process cannot open all of the descriptors; `EACCES` if a security module
            /// refuses them. After such an error none of them is open here, and the message is
            /// still in the socket: close other descriptors and call again, or receive the message
            /// without descriptors.
            ///
            /// # Cancel safety
            /// A call that was dropped before it returned has taken nothing, and `fds` is as it
            /// was.
            pub async fn recv_with_fds(
                &self,
                buf: &mut [u8],
                fds: &mut Vec<OwnedFd>,
            ) -> io::Result<usize> {
                if Self::KIND == Kind::Bytes && buf.is_empty() {
                    consume_budget().await;
                    return Ok(0);
                }
                super::shared(self.registered()?, Direction::Read, |fd| {
                    receive(fd, Self::KIND, buf, fds).map(|message| message.count)
                })
                .await
            }

            /// Like [`recv_with_fds`](Self::recv_with_fds), but does not wait.
            ///
            /// # Errors
            /// `WouldBlock`: nothing has arrived. Otherwise, the same as for
            /// [`recv_with_fds`](Self::recv_with_fds).
            pub fn try_recv_with_fds(
                &self,
                buf: &mut [u8],
                fds: &mut Vec<OwnedFd>,
            ) -> io::Result<usize> {
                if Self::KIND == Kind::Bytes && buf.is_empty() {
                    return Ok(0);
                }
                self.registered()?.attempt(Direction::Read, |fd| {
                    receive(fd, Self::KIND, buf, fds).map(|message| message.count)
                })
            }
        }
    )* };
}

sending_methods!(UnixStream, OwnedWriteHalf, UnixDatagram, UnixSeqpacket);
receiving_methods!(UnixStream, OwnedReadHalf, UnixDatagram, UnixSeqpacket);
