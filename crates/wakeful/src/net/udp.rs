mod attempts;
#[cfg(feature = "quinn-udp")]
mod batch;
mod options;
mod poll;

#[cfg(feature = "quinn-udp")]
pub use self::batch::BatchUdpSocket;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::buffer::{Buffer, spare_capacity};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketAddrAny, SocketType};
use socket2::SockRef;

use super::ready_methods::ready_methods;
use super::resolve::{Resolve, no_addresses, resolve, resolve_one};
use crate::driver::interest::{Interest, Ready};
use crate::driver::registered::Registered;
use crate::driver::source::Direction;
use crate::priority::Priority;
use crate::readiness::Wait;
use crate::task::{consume_budget, coop};

/// A UDP socket of this loop. Several tasks may wait on it at once, in each direction.
///
/// Options that have no method here can be set through [`AsFd`], for example with the `socket2`
/// crate.
///
/// An unconnected socket receives datagrams from any sender, and each send names the receiver.
/// [`connect`](Self::connect) fixes one peer. Then, if the network reports that the peer has no
/// socket for a datagram, the next operation of any kind returns `ECONNREFUSED`.
///
/// For QUIC and other protocols that send many datagrams at once, or that need ECN marks or the
/// address to which a datagram was sent, use a `BatchUdpSocket` (feature `quinn-udp`).
///
/// ```
/// use wakeful::net::UdpSocket;
///
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     let one = UdpSocket::bind("127.0.0.1:0").await?;
///     let other = UdpSocket::bind("127.0.0.1:0").await?;
///     one.send_to(b"hello", other.local_addr()?).await?;
///     let mut buf = [0; 16];
///     let (length, from) = other.recv_from(&mut buf).await?;
///     assert_eq!((&buf[..length], from), (&b"hello"[..], one.local_addr()?));
///     Ok(())
/// })
/// # }
/// ```
///
/// # Cancel safety
/// All operations are cancel-safe: a call that was dropped before it returned has sent or received
/// no datagram.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Registered<OwnedFd>,
}

ready_methods!(UdpSocket);

impl UdpSocket {
    /// Binds a socket to the first of the addresses that can be bound.
    ///
    /// # Cancel safety
    /// Cancel-safe: if cancelled, no socket leaks; a lookup that has started finishes in the
    /// background.
    ///
    /// # Errors
    /// The same as for [`TcpListener::bind`](super::TcpListener::bind).
    pub async fn bind(addr: impl Resolve) -> io::Result<Self> {
        let mut last = None;
        for addr in resolve(addr).await? {
            let bound = super::addr::socket(super::addr::family(addr), SocketType::DGRAM)
                .and_then(|fd| rustix::net::bind(&fd, &addr).map(|()| fd).map_err(Into::into));
            match bound {
                Ok(fd) => {
                    return Ok(Self { socket: super::register(fd)? });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(no_addresses))
    }

    /// Puts an existing socket on this loop. The socket becomes non-blocking. So do its duplicates,
    /// even in other processes, because this is a property of the open file.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: super::register(socket.into())? })
    }

    /// Removes the socket from the loop. The socket stays non-blocking, and the loop wakes no more
    /// tasks for it.
    #[must_use]
    pub fn into_std(self) -> std::net::UdpSocket {
        self.socket.into_inner().into()
    }

    /// Fixes the peer to the first of the addresses that the kernel accepts. [`send`](Self::send)
    /// sends to it, and only its datagrams are received.
    ///
    /// # Errors
    /// Kernel errors; the lookup failed.
    pub async fn connect(&self, addr: impl Resolve) -> io::Result<()> {
        let mut last = None;
        for addr in resolve(addr).await? {
            match rustix::net::connect(self.socket.io(), &addr) {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error.into()),
            }
        }
        Err(last.unwrap_or_else(no_addresses))
    }

    /// Sends a datagram to the connected peer. Returns its length in bytes: a datagram is never
    /// sent in part.
    ///
    /// # Errors
    /// Kernel errors: `EMSGSIZE` if the datagram is too long (over 65,507 bytes for IPv4),
    /// `ECONNREFUSED` if the peer had no socket for an earlier datagram; the loop has ended.
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL;
        super::shared(&self.socket, Direction::Write, |fd| rustix::net::send(fd, buf, flags)).await
    }

    /// Sends a datagram to `addr`. If `addr` is a name, each call looks it up, and sends to the
    /// first address. A numeric address needs no lookup. Returns the datagram's length in bytes.
    ///
    /// # Errors
    /// The same as for [`send`](Self::send); the lookup failed.
    pub async fn send_to(&self, buf: &[u8], addr: impl Resolve) -> io::Result<usize> {
        let addr = resolve_one(addr).await?;
        let flags = SendFlags::NOSIGNAL;
        super::shared(&self.socket, Direction::Write, |fd| {
            rustix::net::sendto(fd, buf, flags, &addr)
        })
        .await
    }

    /// Receives a datagram from the connected peer, and returns how many bytes of it are in `buf`.
    /// Bytes that do not fit into `buf` are lost. The result is 0 for an empty datagram.
    ///
    /// # Errors
    /// Kernel errors; the loop has ended.
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(buf, RecvFlags::empty()).await.map(|(length, _)| length)
    }

    /// Receives a datagram. Returns how many bytes of it are in `buf`, and its sender. Bytes that
    /// do not fit into `buf` are lost.
    ///
    /// # Errors
    /// Kernel errors; the loop has ended.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.receive(buf, RecvFlags::empty()).await?;
        Ok((length, from?))
    }

    /// Receives a datagram from the connected peer, appends it to `buf`, and returns how many bytes
    /// it appended. It uses only the spare capacity of `buf`, so call `buf.reserve(…)` first. Bytes
    /// that do not fit are lost. The spare capacity is not zeroed before.
    ///
    /// ```
    /// use wakeful::net::UdpSocket;
    ///
    /// async fn next(socket: &UdpSocket, datagrams: &mut Vec<u8>) -> std::io::Result<usize> {
    ///     datagrams.reserve(1500);
    ///     socket.recv_buf(datagrams).await
    /// }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput`: `buf` has no room (the datagram would be lost). Kernel errors; the loop has
    /// ended.
    pub async fn recv_buf(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        self.receive_into(buf).await.map(|(length, _)| length)
    }

    /// Like [`recv_buf`](Self::recv_buf), but also returns the sender.
    ///
    /// # Errors
    /// The same as for [`recv_buf`](Self::recv_buf).
    pub async fn recv_buf_from(&self, buf: &mut Vec<u8>) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.receive_into(buf).await?;
        Ok((length, from?))
    }

    /// Receives a datagram without removing it from the queue. Returns how many bytes of it are in
    /// `buf`, and its sender.
    ///
    /// # Errors
    /// Kernel errors; the loop has ended.
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.receive(buf, RecvFlags::PEEK).await?;
        Ok((length, from?))
    }

    /// Receives a datagram from the connected peer without removing it from the queue. Returns how
    /// many bytes of it are in `buf`.
    ///
    /// # Errors
    /// Kernel errors; the loop has ended.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(buf, RecvFlags::PEEK).await.map(|(length, _)| length)
    }

    /// Waits for a datagram, and returns its sender. The datagram stays in the queue.
    ///
    /// # Errors
    /// Kernel errors; the loop has ended.
    pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
        self.receive(&mut [], RecvFlags::PEEK).await?.1
    }

    async fn receive(&self, buf: &mut [u8], flags: RecvFlags) -> io::Result<Datagram> {
        let receive = |fd: &_| receive(fd, &mut *buf, flags);
        super::shared(&self.socket, Direction::Read, receive).await.map(from)
    }

    async fn receive_into(&self, buf: &mut Vec<u8>) -> io::Result<Datagram> {
        has_room(buf)?;
        let receive = |fd: &_| receive(fd, spare_capacity(buf), RecvFlags::empty());
        super::shared(&self.socket, Direction::Read, receive).await.map(from)
    }

    fn socket(&self) -> &Registered<OwnedFd> {
        &self.socket
    }

    /// Sets the priority: events of a high-priority socket are handled in the next turn, before all
    /// others. See [`TcpStream::set_priority`](super::TcpStream::set_priority).
    ///
    /// # Errors
    /// The same as for [`TcpStream::set_priority`](super::TcpStream::set_priority).
    pub fn set_priority(&self, priority: Priority) -> io::Result<()> {
        self.socket.set_priority(priority)
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let addr = SockRef::from(self.socket.io()).local_addr()?;
        addr.as_socket().ok_or_else(|| io::Error::other("not an internet address"))
    }

    /// Returns the connected peer's address.
    ///
    /// # Errors
    /// `ENOTCONN`: the socket is not connected. Kernel errors.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let addr = SockRef::from(self.socket.io()).peer_addr()?;
        addr.as_socket().ok_or_else(|| io::Error::other("not an internet address"))
    }
}

/// The length and the sender of a datagram.
type Datagram = (usize, io::Result<SocketAddr>);

fn receive(
    fd: &OwnedFd,
    buf: impl Buffer<u8, Output = usize>,
    flags: RecvFlags,
) -> Result<(usize, Option<SocketAddrAny>), Errno> {
    let (length, _, from) = rustix::net::recvfrom(fd, buf, flags)?;
    Ok((length, from))
}

fn has_room(buf: &Vec<u8>) -> io::Result<()> {
    if buf.len() < buf.capacity() {
        return Ok(());
    }
    let why = "the buffer has no room for a datagram: reserve as much as the longest one needs";
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

fn from((length, from): (usize, Option<SocketAddrAny>)) -> Datagram {
    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
    (length, from.ok_or_else(|| io::Error::other("a datagram without a sender")))
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.io().as_fd()
    }
}
