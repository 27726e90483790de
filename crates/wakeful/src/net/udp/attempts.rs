//! One attempt to send or to receive, without a wait.

use std::io;
use std::net::SocketAddr;

use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, SendFlags};

use super::{Datagram, UdpSocket, from, has_room, receive};
use crate::driver::source::Direction;

impl UdpSocket {
    /// Sends a datagram to the connected peer, but does not wait. Returns its length in bytes.
    ///
    /// # Errors
    /// `WouldBlock`: the socket's buffer has no room now. Otherwise, the same as for
    /// [`send`](Self::send).
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL;
        self.socket.attempt(Direction::Write, |fd| rustix::net::send(fd, buf, flags))
    }

    /// Sends a datagram to `addr`, but does not wait. Returns its length in bytes.
    ///
    /// # Errors
    /// The same as for [`try_send`](Self::try_send).
    pub fn try_send_to(&self, buf: &[u8], addr: SocketAddr) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL;
        self.socket.attempt(Direction::Write, |fd| rustix::net::sendto(fd, buf, flags, &addr))
    }

    /// Receives a datagram from the connected peer, if there is one. Returns how many bytes of it
    /// are in `buf`. Bytes that do not fit into `buf` are lost.
    ///
    /// # Errors
    /// `WouldBlock`: there is none. Kernel errors.
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.try_receive(buf, RecvFlags::empty()).map(|(length, _)| length)
    }

    /// Receives a datagram, if there is one. Returns how many bytes of it are in `buf`, and its
    /// sender. Bytes that do not fit into `buf` are lost.
    ///
    /// # Errors
    /// The same as for [`try_recv`](Self::try_recv).
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.try_receive(buf, RecvFlags::empty())?;
        Ok((length, from?))
    }

    /// Receives a datagram from the connected peer, if there is one, and appends it to `buf`, as
    /// [`recv_buf`](Self::recv_buf) does. Returns how many bytes it appended.
    ///
    /// # Errors
    /// The same as for [`try_recv`](Self::try_recv); `InvalidInput`: `buf` has no room.
    pub fn try_recv_buf(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        self.try_receive_into(buf).map(|(length, _)| length)
    }

    /// Like [`try_recv_buf`](Self::try_recv_buf), but also returns the sender.
    ///
    /// # Errors
    /// `WouldBlock`: there is none. `InvalidInput`: `buf` has no room. Kernel errors.
    pub fn try_recv_buf_from(&self, buf: &mut Vec<u8>) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.try_receive_into(buf)?;
        Ok((length, from?))
    }

    /// Receives a datagram from the connected peer, if there is one, without removing it from the
    /// queue. Returns how many bytes of it are in `buf`.
    ///
    /// # Errors
    /// The same as for [`try_recv`](Self::try_recv).
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.try_receive(buf, RecvFlags::PEEK).map(|(length, _)| length)
    }

    /// Receives a datagram, if there is one, without removing it from the queue. Returns how many
    /// bytes of it are in `buf`, and its sender.
    ///
    /// # Errors
    /// The same as for [`try_recv`](Self::try_recv).
    pub fn try_peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.try_receive(buf, RecvFlags::PEEK)?;
        Ok((length, from?))
    }

    /// Returns the sender of the next datagram, if there is one. The datagram stays in the queue.
    ///
    /// # Errors
    /// The same as for [`try_recv`](Self::try_recv).
    pub fn try_peek_sender(&self) -> io::Result<SocketAddr> {
        self.try_receive(&mut [], RecvFlags::PEEK)?.1
    }

    fn try_receive(&self, buf: &mut [u8], flags: RecvFlags) -> io::Result<Datagram> {
        self.socket.attempt(Direction::Read, |fd| receive(fd, &mut *buf, flags)).map(from)
    }

    fn try_receive_into(&self, buf: &mut Vec<u8>) -> io::Result<Datagram> {
        has_room(buf)?;
        let receive = |fd: &_| receive(fd, spare_capacity(buf), RecvFlags::empty());
        self.socket.attempt(Direction::Read, receive).map(from)
    }
}
