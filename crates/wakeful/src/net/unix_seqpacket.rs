use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use socket2::SockRef;

use super::message_io::{self, MessageIo, message_methods};
use super::ready_methods::ready_methods;
use super::unix::{kernel_addr, unix_addr};
use super::unix_socket;
use crate::driver::interest::{Interest, Ready};
use crate::driver::registered::Registered;
use crate::driver::source::Direction;
use crate::priority::Priority;
use crate::readiness::Wait;
use crate::sys::limits::explain_call_error;
use crate::sys::unix_message::unnamed;
use crate::task::coop::checked;
use crate::task::{consume_budget, coop};

/// A connection that carries packets over a Unix socket (`SOCK_SEQPACKET`). The peer receives each
/// `send` with one `recv`, in order, and sees the end of the connection, as on a stream. It belongs
/// to its loop. Several tasks may wait on it at once, in each direction.
///
/// If `recv` returns 0, that is the end, or an empty packet: the kernel does not distinguish them.
/// Bytes that do not fit into the buffer of a `recv` are lost.
///
/// Descriptors that a peer attaches to a packet are closed, unless
/// [`recv_with_fds`](Self::recv_with_fds) receives the packet.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
///
/// # Examples
/// ```
/// use wakeful::net::UnixSeqpacket;
///
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     let (ours, theirs) = UnixSeqpacket::pair()?;
///     ours.send(b"one").await?;
///     ours.send(b"three").await?;
///     drop(ours);
///     let mut buf = [0; 64];
///     assert_eq!(theirs.recv(&mut buf).await?, 3);
///     assert_eq!(theirs.recv(&mut buf).await?, 5);
///     assert_eq!(theirs.recv(&mut buf).await?, 0);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct UnixSeqpacket {
    io: MessageIo,
}

message_methods!(UnixSeqpacket, "packet");
ready_methods!(UnixSeqpacket);

impl UnixSeqpacket {
    /// Connects to the socket file `path`. While the listener's backlog is full, it retries, at
    /// first after 50 µs and later after up to 10 ms (the kernel reports no event when a backlog
    /// has room).
    ///
    /// # Errors
    /// Kernel errors (`EPROTOTYPE` if the socket is of another kind); the path is too long for an
    /// address (`ENAMETOOLONG`); no loop runs on this thread; no descriptors are left.
    ///
    /// # Cancel safety
    /// Dropping the future ends the attempt.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::connect_to(&checked(SocketAddrUnix::new(path.as_ref())).await?).await
    }

    /// Like [`connect`](Self::connect), to a path or to an abstract name.
    ///
    /// # Errors
    /// `InvalidInput`: the address is unnamed. Otherwise, the same as for `connect`.
    ///
    /// # Cancel safety
    /// The same as for [`connect`](Self::connect).
    pub async fn connect_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::connect_to(&checked(kernel_addr(addr)).await?).await
    }

    async fn connect_to(addr: &SocketAddrUnix) -> io::Result<Self> {
        Self::on_loop(unix_socket::connect(SocketType::SEQPACKET, addr).await?)
    }

    /// Makes two sockets that are connected to each other.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = unix_socket::pair(SocketType::SEQPACKET)?;
        Ok((Self::on_loop(one)?, Self::on_loop(other)?))
    }

    fn on_loop(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { io: MessageIo::new(fd)? })
    }

    /// Puts an existing connection on this loop. It becomes non-blocking. (`fd` is a plain
    /// descriptor, because the standard library has no type for such connections.)
    ///
    /// # Errors
    /// `InvalidInput`: it is not a `SOCK_SEQPACKET` Unix socket. No loop runs on this thread; no
    /// descriptors are left.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        Self::on_loop(of_packets(fd)?)
    }

    /// Removes the connection from its loop. It stays non-blocking.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.io.into_fd()
    }
}

/// Listens for connections that carry packets over a Unix socket. It belongs to its loop. The
/// socket file stays when the listener closes: remove the file yourself.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
///
/// # Examples
/// ```
/// use wakeful::net::{UnixSeqpacket, UnixSeqpacketListener};
///
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     let listener = UnixSeqpacketListener::autobind()?;
///     let client = UnixSeqpacket::connect_addr(&listener.local_addr()?).await?;
///     let (server, from) = listener.accept().await?;
///     assert!(from.is_unnamed());
///     client.send(b"hello").await?;
///     assert_eq!(server.recv(&mut [0; 64]).await?, 5);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct UnixSeqpacketListener {
    io: MessageIo,
}

impl UnixSeqpacketListener {
    /// Creates the socket file `path` and listens on it.
    ///
    /// # Errors
    /// The file exists (`AddrInUse`), or cannot be created; the path is too long for an address
    /// (`ENAMETOOLONG`); no loop runs on this thread; no descriptors are left.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::listen(&SocketAddrUnix::new(path.as_ref())?)
    }

    /// Listens on `addr`: a path, as for [`bind`](Self::bind), or an abstract name, which has no
    /// file (unix(7)).
    ///
    /// # Errors
    /// `InvalidInput`: the address is unnamed. Otherwise, the same as for `bind`.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::listen(&kernel_addr(addr)?)
    }

    /// Listens on an abstract name that the kernel chooses: see [`local_addr`](Self::local_addr).
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left.
    pub fn autobind() -> io::Result<Self> {
        Self::listen(&SocketAddrUnix::new_unnamed())
    }

    fn listen(addr: &SocketAddrUnix) -> io::Result<Self> {
        let fd = unix_socket::listen(SocketType::SEQPACKET, addr)?;
        Ok(Self { io: MessageIo::new(fd)? })
    }

    /// Puts an existing listener on this loop. It becomes non-blocking.
    ///
    /// # Errors
    /// `InvalidInput`: it is not a `SOCK_SEQPACKET` Unix socket. No loop runs on this thread; no
    /// descriptors are left.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { io: MessageIo::new(of_packets(fd)?)? })
    }

    /// Removes the listener from its loop. It stays non-blocking.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.io.into_fd()
    }

    /// Accepts the next connection, and returns it with the client's address, which is unnamed
    /// unless the client has bound its socket. Several tasks may wait at once.
    ///
    /// # Errors
    /// The same as for [`TcpListener::accept`](super::TcpListener::accept).
    ///
    /// # Cancel safety
    /// A call that was dropped before it returned has taken no connection.
    pub async fn accept(&self) -> io::Result<(UnixSeqpacket, SocketAddr)> {
        self.accepted(self.io.shared(Direction::Read, accept).await)
    }

    /// Polls like [`accept`](Self::accept), for hand-written futures. Only one task at a time may
    /// poll: only the last caller is woken. Any number of tasks may await `accept` meanwhile.
    ///
    /// # Errors
    /// The same as for [`accept`](Self::accept).
    pub fn poll_accept(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(UnixSeqpacket, SocketAddr)>> {
        let accepted = ready!(self.io.poll_alone(Direction::Read, cx, accept));
        Poll::Ready(self.accepted(accepted))
    }

    fn accepted(&self, fd: io::Result<OwnedFd>) -> io::Result<(UnixSeqpacket, SocketAddr)> {
        let packets = UnixSeqpacket::on_loop(fd.map_err(explain_call_error("accept4"))?)?;
        packets.set_priority(self.io.socket().priority())?;
        // The standard library cannot represent a path of 108 bytes.
        let peer = packets.peer_addr().unwrap_or_else(|_| unnamed());
        Ok((packets, peer))
    }

    /// Sets the priority: connections to a high-priority listener are handled in the next turn,
    /// before all other events. Connections that it accepts from now on also have high priority.
    /// See [`UnixStream::set_priority`](super::UnixStream::set_priority).
    ///
    /// # Errors
    /// The same as for [`UnixStream::set_priority`](super::UnixStream::set_priority).
    pub fn set_priority(&self, priority: Priority) -> io::Result<()> {
        self.io.socket().set_priority(priority)
    }

    /// Returns the address on which it listens: a path or an abstract name.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix_addr(SockRef::from(self).local_addr())
    }
}

fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// A non-blocking one.
fn of_packets(fd: OwnedFd) -> io::Result<OwnedFd> {
    if socket_domain(&fd)? != AddressFamily::UNIX || socket_type(&fd)? != SocketType::SEQPACKET {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the descriptor is not a Unix socket of packets (SOCK_SEQPACKET)",
        ));
    }
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(fd)
}

impl AsFd for UnixSeqpacketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.socket().io().as_fd()
    }
}
