//! What Unix sockets that preserve message boundaries have in common: datagrams and packets.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::driver::registered::Registered;
use crate::driver::source::Direction;

/// A Unix socket of messages on its loop.
#[derive(Debug)]
pub(super) struct MessageIo {
    socket: Registered<OwnedFd>,
}

impl MessageIo {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { socket: super::register(fd)? })
    }

    pub(super) fn socket(&self) -> &Registered<OwnedFd> {
        &self.socket
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.socket.into_inner()
    }

    /// Waits until an operation can be done. Several tasks may wait at the same time.
    pub(super) async fn shared<R>(
        &self,
        direction: Direction,
        operation: impl FnMut(&OwnedFd) -> Result<R, Errno>,
    ) -> io::Result<R> {
        super::shared(&self.socket, direction, operation).await
    }

    /// Waits until an operation can be done. Only one task may wait in each direction.
    pub(super) fn poll_alone<R>(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        operation: impl FnMut(&OwnedFd) -> Result<R, Errno>,
    ) -> Poll<io::Result<R>> {
        super::poll_alone(&self.socket, direction, cx, operation)
    }

    pub(super) fn attempt<R>(
        &self,
        direction: Direction,
        operation: impl FnMut(&OwnedFd) -> Result<R, Errno>,
    ) -> io::Result<R> {
        self.socket.attempt(direction, operation)
    }
}

pub(super) fn send(fd: &OwnedFd, buf: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(fd, buf, SendFlags::NOSIGNAL)
}

/// Receives a message. The kernel closes descriptors that come with it, because there is no room
/// for them.
pub(super) fn receive(fd: &OwnedFd, buf: &mut [u8], flags: RecvFlags) -> Result<usize, Errno> {
    rustix::net::recv(fd, buf, flags).map(|(_, length)| length)
}

/// The methods of types with a field `io: MessageIo`. `$message` is what their messages are called.
macro_rules! message_methods {
    ($type:ident, $message:literal) => {
        impl $type {
            #[doc = concat!("Sends a ", $message, " to the peer, and returns its length in bytes. ")]
            #[doc = concat!("A ", $message, " is never sent in part. Several tasks may wait at once.")]
            ///
            /// # Errors
            /// Kernel errors: `EMSGSIZE` if `buf` is longer than the socket's buffer (`SO_SNDBUF`),
            /// `ECONNREFUSED` or `EPIPE` if the peer is gone (no SIGPIPE), `ENOTCONN` if the socket
            /// has no peer; the loop has ended.
            ///
            /// # Cancel safety
            /// A call that was dropped before it returned has sent nothing.
            pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
                self.io.shared(Direction::Write, |fd| message_io::send(fd, buf)).await
            }

            #[doc = concat!("Receives a ", $message, ", and returns how many bytes of it are in ")]
            /// `buf`. Bytes that do not fit into `buf` are lost. Several tasks may wait at once.
            ///
            /// # Errors
            /// Kernel errors; the loop has ended.
            ///
            /// # Cancel safety
            /// A call that was dropped before it returned has taken nothing.
            pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
                let flags = RecvFlags::empty();
                self.io.shared(Direction::Read, |fd| message_io::receive(fd, buf, flags)).await
            }

            #[doc = concat!("Receives a ", $message, " without taking it, and returns how many ")]
            /// bytes of it are in `buf`. Several tasks may wait at once.
            ///
            /// # Errors
            /// Kernel errors; the loop has ended.
            ///
            /// # Cancel safety
            /// Cancel-safe: it takes nothing.
            pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
                let flags = RecvFlags::PEEK;
                self.io.shared(Direction::Read, |fd| message_io::receive(fd, buf, flags)).await
            }

            /// Like [`send`](Self::send), but does not wait.
            ///
            /// # Errors
            /// `WouldBlock`: there is no room now. Otherwise, the same as for [`send`](Self::send).
            pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
                self.io.attempt(Direction::Write, |fd| message_io::send(fd, buf))
            }

            /// Like [`recv`](Self::recv), but does not wait.
            ///
            /// # Errors
            /// `WouldBlock`: nothing has arrived. Kernel errors.
            pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
                let flags = RecvFlags::empty();
                self.io.attempt(Direction::Read, |fd| message_io::receive(fd, buf, flags))
            }

            /// Like [`peek`](Self::peek), but does not wait.
            ///
            /// # Errors
            /// `WouldBlock`: nothing has arrived. Kernel errors.
            pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
                let flags = RecvFlags::PEEK;
                self.io.attempt(Direction::Read, |fd| message_io::receive(fd, buf, flags))
            }

            /// Polls like [`send`](Self::send), for hand-written futures. Only one task at a time
            /// may poll: only the last caller is woken. Any number of tasks may await `send`
            /// meanwhile.
            ///
            /// # Errors
            /// The same as for [`send`](Self::send).
            pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                self.io.poll_alone(Direction::Write, cx, |fd| message_io::send(fd, buf))
            }

            /// Polls like [`recv`](Self::recv), for hand-written futures. Only one task at a time
            /// may poll: only the last caller is woken. Any number of tasks may await `recv`
            /// meanwhile.
            ///
            /// # Errors
            /// The same as for [`recv`](Self::recv).
            pub fn poll_recv(
                &self,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                let flags = RecvFlags::empty();
                let receive = |fd: &OwnedFd| message_io::receive(fd, buf, flags);
                self.io.poll_alone(Direction::Read, cx, receive)
            }

            /// Ends receiving, sending, or both, like the standard library's `shutdown`.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn shutdown_side(&self, side: Shutdown) -> io::Result<()> {
                SockRef::from(self).shutdown(side)
            }

            /// Sets the priority: events of a high-priority socket are handled in the next turn,
            /// before all others. See
            /// [`UnixStream::set_priority`](super::UnixStream::set_priority).
            ///
            /// # Errors
            /// The same as for [`UnixStream::set_priority`](super::UnixStream::set_priority).
            pub fn set_priority(&self, priority: Priority) -> io::Result<()> {
                self.io.socket().set_priority(priority)
            }

            /// Returns the local address; it is unnamed unless it was bound.
            ///
            /// # Errors
            /// Kernel errors.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                unix_addr(SockRef::from(self).local_addr())
            }

            /// Returns the other end's address; it is unnamed unless that end was bound.
            ///
            /// # Errors
            /// `NotConnected`: there is no other end. Kernel errors.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                unix_addr(SockRef::from(self).peer_addr())
            }

            pub(super) fn io(&self) -> &MessageIo {
                &self.io
            }

            fn socket(&self) -> &Registered<OwnedFd> {
                self.io.socket()
            }
        }

        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.io.socket().io().as_fd()
            }
        }
    };
}
pub(super) use message_methods;
