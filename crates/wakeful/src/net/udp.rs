use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

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

/// A UDP socket of this loop. Several tasks may wait on it at once, each way.
///
/// All operations are *cancel-safe*: one that has not returned has sent or taken no datagram.
/// Options that have no method here are set through [`AsFd`], for example with the `socket2` crate.
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
/// *Threads*: Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Registered<OwnedFd>,
}

ready_methods!(UdpSocket);

impl UdpSocket {
    /// A socket on the first of the addresses that can be bound.
    ///
    /// *Cancel-safe*: given up, it leaves no socket behind; a lookup of a name goes on in its
    /// thread, for nobody.
    ///
    /// # Errors
    /// As for [`TcpListener::bind`](super::TcpListener::bind).
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

    /// Puts a socket from elsewhere on this loop.
    ///
    /// # Errors
    /// No loop runs here; no descriptors left.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: super::register(socket.into())? })
    }

    /// Fixes the peer, the first of the addresses that the kernel accepts: [`send`](Self::send)
    /// goes there, and only its datagrams are received.
    ///
    /// # Errors
    /// The kernel's; the lookup failed.
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

    /// Sends a datagram to the connected peer.
    ///
    /// # Errors
    /// The kernel's: `EMSGSIZE` for one that is too long (over 65,507 bytes by IPv4),
    /// `ECONNREFUSED` for an earlier one that nobody took.
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL;
        super::shared(&self.socket, Direction::Write, |fd| rustix::net::send(fd, buf, flags)).await
    }

    /// Sends a datagram to `addr`, of a name to the first of its addresses. An address costs
    /// nothing; a name is looked up each time.
    ///
    /// # Errors
    /// As for [`send`](Self::send); the lookup failed.
    pub async fn send_to(&self, buf: &[u8], addr: impl Resolve) -> io::Result<usize> {
        let addr = resolve_one(addr).await?;
        let flags = SendFlags::NOSIGNAL;
        super::shared(&self.socket, Direction::Write, |fd| {
            rustix::net::sendto(fd, buf, flags, &addr)
        })
        .await
    }

    /// Receives a datagram from the connected peer. What does not fit `buf` is lost.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(buf, RecvFlags::empty()).await.map(|(length, _)| length)
    }

    /// Receives a datagram, and says who sent it. What does not fit `buf` is lost.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.receive(buf, RecvFlags::empty()).await?;
        Ok((length, from?))
    }

    /// Receives a datagram without taking it.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.receive(buf, RecvFlags::PEEK).await?;
        Ok((length, from?))
    }

    /// Receives a datagram from the connected peer without taking it.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(buf, RecvFlags::PEEK).await.map(|(length, _)| length)
    }

    async fn receive(&self, buf: &mut [u8], flags: RecvFlags) -> io::Result<Datagram> {
        super::shared(&self.socket, Direction::Read, |fd| receive(fd, buf, flags)).await.map(from)
    }

    /// Sends a datagram to the connected peer, and does not wait.
    ///
    /// # Errors
    /// `WouldBlock`: the socket's buffer has no room now. As for [`send`](Self::send).
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL;
        self.socket.attempt(Direction::Write, |fd| rustix::net::send(fd, buf, flags))
    }

    /// Sends a datagram to `addr`, and does not wait.
    ///
    /// # Errors
    /// As for [`try_send`](Self::try_send).
    pub fn try_send_to(&self, buf: &[u8], addr: SocketAddr) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL;
        self.socket.attempt(Direction::Write, |fd| rustix::net::sendto(fd, buf, flags, &addr))
    }

    /// Receives a datagram from the connected peer, if there is one.
    ///
    /// # Errors
    /// `WouldBlock`: there is none. The kernel's.
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.try_receive(buf, RecvFlags::empty()).map(|(length, _)| length)
    }

    /// Receives a datagram, if there is one, and says who sent it.
    ///
    /// # Errors
    /// As for [`try_recv`](Self::try_recv).
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.try_receive(buf, RecvFlags::empty())?;
        Ok((length, from?))
    }

    /// Receives a datagram without taking it, if there is one.
    ///
    /// # Errors
    /// As for [`try_recv`](Self::try_recv).
    pub fn try_peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.try_receive(buf, RecvFlags::PEEK)?;
        Ok((length, from?))
    }

    fn try_receive(&self, buf: &mut [u8], flags: RecvFlags) -> io::Result<Datagram> {
        self.socket.attempt(Direction::Read, |fd| receive(fd, buf, flags)).map(from)
    }

    fn socket(&self) -> &Registered<OwnedFd> {
        &self.socket
    }

    /// What is ready on a high socket is seen in the next turn, before anything else. See
    /// [`TcpStream::set_priority`](super::TcpStream::set_priority).
    ///
    /// # Errors
    /// As there.
    pub fn set_priority(&self, priority: Priority) -> io::Result<()> {
        self.socket.set_priority(priority)
    }

    /// This end's address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let addr = SockRef::from(self.socket.io()).local_addr()?;
        addr.as_socket().ok_or_else(|| io::Error::other("not an internet address"))
    }

    /// `SO_BROADCAST`: may datagrams go to broadcast addresses?
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        SockRef::from(self.socket.io()).set_broadcast(broadcast)
    }
}

/// How long it is, and who sent it.
type Datagram = (usize, io::Result<SocketAddr>);

fn receive(
    fd: &OwnedFd,
    buf: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Option<SocketAddrAny>), Errno> {
    let (length, _, from) = rustix::net::recvfrom(fd, &mut *buf, flags)?;
    Ok((length.min(buf.len()), from))
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
