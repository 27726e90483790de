//! Methods for hand-written futures. Only one task may wait in each direction.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::{Datagram, UdpSocket, from, receive};
use crate::driver::source::Direction;
use crate::net;

impl UdpSocket {
    /// Polls like [`send`](Self::send), for hand-written futures. Only one task at a time may poll:
    /// only the last caller is woken. Any number of tasks may await [`send`](Self::send) and
    /// [`writable`](Self::writable) meanwhile.
    ///
    /// # Errors
    /// Kernel errors: `EMSGSIZE` if the datagram is too long (over 65,507 bytes for IPv4),
    /// `ECONNREFUSED` if the peer had no socket for an earlier datagram; the loop has ended.
    ///
    /// # Cancel safety
    /// A poll that was pending has sent nothing.
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let flags = SendFlags::NOSIGNAL;
        self.poll_alone(Direction::Write, cx, |fd| rustix::net::send(fd, buf, flags))
    }

    /// Like [`poll_send`](Self::poll_send), but sends to `addr`.
    ///
    /// # Errors
    /// Kernel errors: `EMSGSIZE` if the datagram is too long (over 65,507 bytes for IPv4),
    /// `ECONNREFUSED` if the peer had no socket for an earlier datagram; the loop has ended.
    ///
    /// # Cancel safety
    /// A poll that was pending has sent nothing.
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        addr: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        let flags = SendFlags::NOSIGNAL;
        self.poll_alone(Direction::Write, cx, |fd| rustix::net::sendto(fd, buf, flags, &addr))
    }

    /// Polls like [`recv`](Self::recv), for hand-written futures. Only one task at a time may poll:
    /// only the last caller is woken. Any number of tasks may await [`recv`](Self::recv) and
    /// [`readable`](Self::readable) meanwhile.
    ///
    /// # Errors
    /// Kernel errors; the loop has ended.
    ///
    /// # Cancel safety
    /// A poll that was pending has received nothing.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let received = self.poll_receive(cx, buf, RecvFlags::empty());
        received.map_ok(|(length, _)| length)
    }

    /// Like [`poll_recv`](Self::poll_recv), but also returns the sender.
    ///
    /// ```
    /// use std::future::poll_fn;
    /// use wakeful::net::UdpSocket;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// wakeful::block_on(async {
    ///     let one = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let other = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let to = other.local_addr()?;
    ///     poll_fn(|cx| one.poll_send_to(cx, b"hello", to)).await?;
    ///     let mut buf = [0; 16];
    ///     let (length, from) = poll_fn(|cx| other.poll_recv_from(cx, &mut buf)).await?;
    ///     assert_eq!((&buf[..length], from), (&b"hello"[..], one.local_addr()?));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Kernel errors; the loop has ended.
    ///
    /// # Cancel safety
    /// A poll that was pending has received nothing.
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let (length, from) = ready!(self.poll_receive(cx, buf, RecvFlags::empty()))?;
        Poll::Ready(from.map(|from| (length, from)))
    }

    /// Like [`poll_recv_from`](Self::poll_recv_from), but the datagram stays in the queue.
    ///
    /// # Errors
    /// Kernel errors; the loop has ended.
    ///
    /// # Cancel safety
    /// Cancel-safe: it takes nothing.
    pub fn poll_peek_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let (length, from) = ready!(self.poll_receive(cx, buf, RecvFlags::PEEK))?;
        Poll::Ready(from.map(|from| (length, from)))
    }

    /// Polls like [`peek_sender`](Self::peek_sender), for hand-written futures. Only one task at a
    /// time may poll, as for [`poll_recv`](Self::poll_recv).
    ///
    /// # Errors
    /// Kernel errors; the loop has ended.
    ///
    /// # Cancel safety
    /// Cancel-safe: it takes nothing.
    pub fn poll_peek_sender(&self, cx: &mut Context<'_>) -> Poll<io::Result<SocketAddr>> {
        Poll::Ready(ready!(self.poll_receive(cx, &mut [], RecvFlags::PEEK))?.1)
    }

    fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
        flags: RecvFlags,
    ) -> Poll<io::Result<Datagram>> {
        let receive = |fd: &_| receive(fd, &mut *buf, flags);
        self.poll_alone(Direction::Read, cx, receive).map_ok(from)
    }

    pub(super) fn poll_alone<R>(
        &self,
        direction: Direction,
        cx: &mut Context<'_>,
        operation: impl FnMut(&OwnedFd) -> Result<R, Errno>,
    ) -> Poll<io::Result<R>> {
        net::poll_alone(&self.socket, direction, cx, operation)
    }
}
