use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::{SocketAddrUnix, SocketType};
use socket2::{SockAddr, SockRef};

use super::accept::{self, Peer};
use super::byte_stream::{ByteStream, StreamIo, read_methods, stream_methods, write_methods};
use super::incoming::Incoming;
use super::listener_socket::listener_methods;
use super::unix_socket;
use crate::driver::registered::Registered;
use crate::priority::Priority;
use crate::sys::uninit::ReadCall;
use crate::sys::unix_message::unnamed;
use crate::task::coop::checked;

/// A listening Unix socket of this loop. The socket's file stays when the socket closes: remove it
/// yourself.
///
/// ```
/// use wakeful::net::{UnixListener, UnixStream};
///
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     let listener = UnixListener::autobind()?;
///     let mut client = UnixStream::connect_addr(&listener.local_addr()?).await?;
///     let (mut server, from) = listener.accept().await?;
///     assert!(from.is_unnamed());
///     client.write_all(b"hello").await?;
///     let mut buf = [0; 16];
///     let read = server.read(&mut buf).await?;
///     assert_eq!(&buf[..read], b"hello");
///     Ok(())
/// })
/// # }
/// ```
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct UnixListener {
    socket: Registered<Arc<OwnedFd>>,
}

listener_methods!(UnixListener);

impl UnixListener {
    /// Creates the socket file `path` and listens on it.
    ///
    /// # Errors
    /// The file exists (`AddrInUse`), or cannot be created; the path is too long for an address
    /// (`ENAMETOOLONG`); no loop runs on this thread; no descriptors are left.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_fd(listen(&SocketAddrUnix::new(path.as_ref())?)?)
    }

    /// Listens on an abstract name that the kernel chooses (unix(7), "Autobind feature"): see
    /// [`local_addr`](Self::local_addr).
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left.
    pub fn autobind() -> io::Result<Self> {
        Self::from_fd(listen(&SocketAddrUnix::new_unnamed())?)
    }

    /// Listens on `addr`: a path, as for [`bind`](Self::bind), or an abstract name, which has no
    /// file (unix(7)).
    ///
    /// # Errors
    /// The address is in use (`AddrInUse`), or is unnamed. Otherwise, the same as for `bind`.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::from_fd(listen(&kernel_addr(addr)?)?)
    }

    /// Puts an existing listener on this loop, as
    /// [`TcpListener::from_std`](super::TcpListener::from_std) does.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left.
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Self::from_fd(listener.into())
    }

    /// Removes the listener from its loop, as
    /// [`TcpListener::into_std`](super::TcpListener::into_std) does.
    ///
    /// # Errors
    /// No descriptors are left for a duplicate.
    pub fn into_std(self) -> io::Result<std::os::unix::net::UnixListener> {
        self.into_fd().map(Into::into)
    }

    /// Accepts the next connection, and returns it with the client's address, which is unnamed
    /// unless the client has bound its socket. Several tasks may wait at once.
    ///
    /// A path of 108 bytes, which [`SocketAddr`] cannot hold, counts as unnamed.
    ///
    /// # Cancel safety
    /// Cancel-safe: a call that was dropped before it returned has taken no connection.
    ///
    /// # Errors
    /// The same as for [`TcpListener::accept`](super::TcpListener::accept).
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (fd, peer) = accept::next(&self.socket).await?;
        self.accepted(fd, peer)
    }

    /// Polls like [`accept`](Self::accept), for hand-written futures. Only one task at a time may
    /// poll: only the last caller is woken. Any number of tasks may await `accept` meanwhile.
    ///
    /// # Cancel safety
    /// A poll that was pending has taken no connection.
    ///
    /// # Errors
    /// The same as for [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        let (fd, peer) = ready!(accept::poll_next_alone(&self.socket, cx))?;
        Poll::Ready(self.accepted(fd, peer))
    }

    /// Returns a stream of accepted connections. See [`Incoming`].
    pub fn incoming(&self) -> Incoming<'_, UnixStream> {
        Incoming::new(&self.socket, on_loop)
    }

    fn accepted(&self, fd: OwnedFd, peer: Peer) -> io::Result<(UnixStream, SocketAddr)> {
        let stream = on_loop(&self.socket, fd)?;
        let named = match peer {
            Peer::Unnamed => None,
            Peer::Internet(_) | Peer::Unsaid => stream.peer_addr().ok(),
        };
        Ok((stream, named.unwrap_or_else(unnamed)))
    }

    /// Returns the address on which it listens: a path or an abstract name.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix_addr(SockRef::from(&**self.socket.io()).local_addr())
    }
}

/// A connection that `listener` has taken.
pub(super) fn on_loop(listener: &Registered<Arc<OwnedFd>>, fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = UnixStream { io: StreamIo::new(fd, ReadCall::Message)? };
    stream.set_priority(listener.priority())?;
    Ok(stream)
}

/// A non-blocking socket that listens on `addr`.
pub(crate) fn listen(addr: &SocketAddrUnix) -> io::Result<OwnedFd> {
    unix_socket::listen(SocketType::STREAM, addr)
}

pub(super) fn unix_addr(addr: io::Result<SockAddr>) -> io::Result<SocketAddr> {
    let addr = addr?;
    if let Some(name) = addr.as_abstract_namespace() {
        return SocketAddr::from_abstract_name(name);
    }
    addr.as_pathname().map_or_else(|| Ok(unnamed()), SocketAddr::from_pathname)
}

pub(super) fn kernel_addr(addr: &SocketAddr) -> io::Result<SocketAddrUnix> {
    if let Some(path) = addr.as_pathname() {
        return Ok(SocketAddrUnix::new(path)?);
    }
    match addr.as_abstract_name() {
        Some(name) => Ok(SocketAddrUnix::new_abstract_name(name)?),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the address has neither a path nor an abstract name",
        )),
    }
}

/// A connection over a Unix socket. It belongs to its loop; see [the module](super).
///
/// Descriptors that a peer attaches to its bytes are closed, unless
/// [`recv_with_fds`](Self::recv_with_fds) receives them.
///
/// ```
/// use wakeful::net::UnixStream;
///
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     let (mut one, mut other) = UnixStream::pair()?;
///     one.write_all(b"hello").await?;
///     one.shutdown().await?;
///     let mut buf = [0; 16];
///     let read = other.read(&mut buf).await?;
///     assert_eq!(&buf[..read], b"hello");
///     assert_eq!(other.read(&mut buf).await?, 0, "the end");
///     Ok(())
/// })
/// # }
/// ```
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct UnixStream {
    io: StreamIo,
}

read_methods!(UnixStream);
write_methods!(UnixStream);
stream_methods!(UnixStream);

impl UnixStream {
    /// Connects to the socket file `path`. While the listener's backlog is full, it retries, at
    /// first after 50 µs and later after up to 10 ms (the kernel reports no event when a backlog
    /// has room).
    ///
    /// # Cancel safety
    /// Cancel-safe: dropping the future ends the attempt.
    ///
    /// # Errors
    /// Kernel errors; the path is too long for an address (`ENAMETOOLONG`); no loop runs on this
    /// thread; no descriptors are left.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::connect_to(checked(SocketAddrUnix::new(path.as_ref())).await?).await
    }

    /// Like [`connect`](Self::connect), to a path or to an abstract name.
    ///
    /// # Cancel safety
    /// The same as for [`connect`](Self::connect).
    ///
    /// # Errors
    /// The address is unnamed. Otherwise, the same as for `connect`.
    pub async fn connect_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::connect_to(checked(kernel_addr(addr)).await?).await
    }

    async fn connect_to(addr: SocketAddrUnix) -> io::Result<Self> {
        let fd = unix_socket::connect(SocketType::STREAM, &addr).await?;
        Ok(Self { io: StreamIo::new(fd, ReadCall::Message)? })
    }

    /// Makes two streams that are connected to each other.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = unix_socket::pair(SocketType::STREAM)?;
        let on_loop = |fd| StreamIo::new(fd, ReadCall::Message).map(|io| Self { io });
        Ok((on_loop(one)?, on_loop(other)?))
    }

    pub(super) fn from_io(io: StreamIo) -> Self {
        Self { io }
    }

    pub(super) fn into_io(self) -> StreamIo {
        self.io
    }

    /// Puts a connected stream on this loop, as [`TcpStream::from_std`](super::TcpStream::from_std)
    /// does.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left.
    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { io: StreamIo::new(stream.into(), ReadCall::Message)? })
    }

    /// Removes the stream from its loop, as [`TcpStream::into_std`](super::TcpStream::into_std)
    /// does.
    #[must_use]
    pub fn into_std(self) -> std::os::unix::net::UnixStream {
        self.io.into_fd().into()
    }

    /// Returns the local address. Clients usually have none.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix_addr(self.io.options().local_addr())
    }

    /// Returns the peer's address. Clients usually have none.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        unix_addr(self.io.options().peer_addr())
    }
}

impl ByteStream for UnixStream {
    #[inline]
    fn io(&self) -> &StreamIo {
        &self.io
    }
}

impl AsFd for UnixStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.fd()
    }
}
