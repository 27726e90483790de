use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::SocketType;
use socket2::SockRef;

use super::accept::{self, Peer};
use super::byte_stream::{ByteStream, StreamIo, read_methods, stream_methods, write_methods};
use super::incoming::Incoming;
use super::listener_socket::listener_methods;
use super::resolve::{Resolve, resolve};
use crate::driver::registered::Registered;
use crate::priority::Priority;
use crate::sys::limits::{explain_bind, explain_call, explain_call_error};
use crate::sys::uninit::ReadCall;

/// A listening TCP socket of this loop. To share a listener between several loops, use a
/// [`SharedListener`](crate::accept::SharedListener).
///
/// ```
/// use wakeful::net::{TcpListener, TcpStream};
///
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let mut client = TcpStream::connect(listener.local_addr()?).await?;
///     let (mut server, _peer) = listener.accept().await?;
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
pub struct TcpListener {
    socket: Registered<Arc<OwnedFd>>,
}

listener_methods!(TcpListener);

impl TcpListener {
    /// Listens on the first of the addresses that can be bound, with `SO_REUSEADDR` and the largest
    /// backlog that the system allows (`net.core.somaxconn`).
    ///
    /// # Cancel safety
    /// Cancel-safe: if cancelled, no socket leaks; a lookup that has started finishes in the
    /// background.
    ///
    /// # Errors
    /// The address is in use, is not one of this host, or needs a privilege; the lookup failed; no
    /// loop runs on this thread; no descriptors are left.
    pub async fn bind(addr: impl Resolve) -> io::Result<Self> {
        let mut last = None;
        for addr in resolve(addr).await? {
            match listen(addr).and_then(Self::from_fd) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(super::resolve::no_addresses))
    }

    /// Puts an existing listener on this loop. Connections that wait in its backlog can be accepted
    /// at once.
    ///
    /// The listener becomes non-blocking. So do its duplicates, even in other processes, because
    /// this is a property of the open file. For a socket that other code keeps and may change, use
    /// [`SharedListener::from_socket`](crate::accept::SharedListener::from_socket).
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Self::from_fd(listener.into())
    }

    /// Removes the listener from its loop. The socket stays non-blocking, and the loop wakes no
    /// more tasks for it. The connections in its backlog stay there.
    ///
    /// If the listener comes from a [`SharedListener`](crate::accept::SharedListener), the result
    /// is a duplicate of its descriptor: the other owners continue to listen.
    ///
    /// # Errors
    /// No descriptors are left for a duplicate.
    pub fn into_std(self) -> io::Result<std::net::TcpListener> {
        self.into_fd().map(Into::into)
    }

    /// Accepts the next connection. Several tasks may wait at once. A connection that its peer has
    /// already aborted (`ECONNABORTED`) is skipped.
    ///
    /// # Cancel safety
    /// Cancel-safe: a call that was dropped before it returned has taken no connection.
    ///
    /// # Errors
    /// No descriptors are left: the message names the limit, and the connection stays in the
    /// backlog. Wait before you try again (see
    /// [`accept::is_shortage`](crate::accept::is_shortage)).
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (fd, peer) = accept::next(&self.socket).await?;
        self.accepted(fd, peer)
    }

    /// Polls like [`accept`](Self::accept), for hand-written futures. Only one task at a time may
    /// poll: only the last caller is woken. Any number of tasks may await `accept` meanwhile.
    ///
    /// # Errors
    /// No descriptors are left: the message names the limit, and the connection stays in the
    /// backlog. Wait before you try again (see
    /// [`accept::is_shortage`](crate::accept::is_shortage)).
    ///
    /// # Cancel safety
    /// A poll that was pending has taken no connection.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let (fd, peer) = ready!(accept::poll_next_alone(&self.socket, cx))?;
        Poll::Ready(self.accepted(fd, peer))
    }

    /// Returns a stream of accepted connections. See [`Incoming`].
    ///
    /// ```
    /// use futures_lite::StreamExt;
    /// use wakeful::net::{TcpListener, TcpStream};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// wakeful::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let client = TcpStream::connect(listener.local_addr()?).await?;
    ///     let mut incoming = listener.incoming().take(1);
    ///     while let Some(stream) = incoming.next().await {
    ///         assert_eq!(stream?.peer_addr()?, client.local_addr()?);
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn incoming(&self) -> Incoming<'_, TcpStream> {
        Incoming::new(&self.socket, on_loop)
    }

    fn accepted(&self, fd: OwnedFd, peer: Peer) -> io::Result<(TcpStream, SocketAddr)> {
        let stream = on_loop(&self.socket, fd)?;
        let peer = peer.internet().map_or_else(|| stream.peer_addr(), Ok)?;
        Ok((stream, peer))
    }

    /// Returns the address on which it listens. If the port was 0, the address has the port that
    /// the kernel chose.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        local_addr(&**self.socket.io())
    }
}

/// A connection that `listener` has taken.
pub(super) fn on_loop(listener: &Registered<Arc<OwnedFd>>, fd: OwnedFd) -> io::Result<TcpStream> {
    let stream = TcpStream { io: StreamIo::new(fd, ReadCall::Plain)? };
    stream.set_priority(listener.priority())?;
    Ok(stream)
}

/// A non-blocking socket that listens on `addr`.
pub(crate) fn listen(addr: SocketAddr) -> io::Result<OwnedFd> {
    let fd = socket(addr)?;
    start_to_listen(fd, addr)
}

/// Like [`listen`], for an address on which other sockets that set `SO_REUSEPORT` may listen
/// already.
pub(crate) fn listen_beside(addr: SocketAddr) -> io::Result<OwnedFd> {
    let fd = socket(addr)?;
    rustix::net::sockopt::set_socket_reuseport(&fd, true).map_err(explain_call("setsockopt"))?;
    start_to_listen(fd, addr)
}

/// Like [`listen_beside`], for a socket that takes connections of the same address families as
/// `first`, and from the same network device. It does not listen before [`listen_bound`] is called.
pub(crate) fn bound_like(first: &OwnedFd, addr: SocketAddr) -> io::Result<OwnedFd> {
    let fd = socket(addr)?;
    let (from, to) = (SockRef::from(first), SockRef::from(&fd));
    if addr.is_ipv6() {
        let only_v6 = from.only_v6().map_err(explain_call_error("getsockopt"))?;
        to.set_only_v6(only_v6).map_err(explain_call_error("setsockopt"))?;
    }
    // In a VRF all sockets are bound from the start, and without CAP_NET_RAW it must not be done
    // again.
    if let Some(device) = device(&from)?
        && !matches!(to.device(), Ok(Some(bound)) if bound == device)
    {
        to.bind_device(Some(&device)).map_err(explain_call_error("setsockopt"))?;
    }
    rustix::net::sockopt::set_socket_reuseport(&fd, true).map_err(explain_call("setsockopt"))?;
    bound(fd, addr)
}

/// The network device that a socket is bound to.
///
/// # Errors
/// The device was removed: `ENODEV`.
fn device(socket: &SockRef<'_>) -> io::Result<Option<Vec<u8>>> {
    match socket.device() {
        // A system that does not know of the option has bound no socket to a device.
        Err(error) if error.raw_os_error() == Some(Errno::NOPROTOOPT.raw_os_error()) => Ok(None),
        result => result.map_err(explain_call_error("getsockopt")),
    }
}

/// Like [`listen`], for a socket beside which others will listen ([`listen_beside`]). It is bound
/// without `SO_REUSEPORT`, so that an address in use is an error.
pub(crate) fn listen_first(addr: SocketAddr) -> io::Result<OwnedFd> {
    let fd = bound(socket(addr)?, addr)?;
    // The option must be set before the socket listens, so that the kernel makes a group of it,
    // although it is alone.
    rustix::net::sockopt::set_socket_reuseport(&fd, true).map_err(explain_call("setsockopt"))?;
    listens(fd)
}

fn start_to_listen(fd: OwnedFd, addr: SocketAddr) -> io::Result<OwnedFd> {
    listens(bound(fd, addr)?)
}

fn bound(fd: OwnedFd, addr: SocketAddr) -> io::Result<OwnedFd> {
    rustix::net::sockopt::set_socket_reuseaddr(&fd, true).map_err(explain_call("setsockopt"))?;
    bind(&fd, addr)?;
    Ok(fd)
}

fn listens(fd: OwnedFd) -> io::Result<OwnedFd> {
    listen_bound(&fd)?;
    Ok(fd)
}

/// Makes a bound socket listen.
pub(crate) fn listen_bound(fd: &OwnedFd) -> io::Result<()> {
    // The kernel reduces the backlog to its own limit.
    rustix::net::listen(fd, i32::MAX).map_err(explain_call("listen"))
}

pub(super) fn bind(fd: &OwnedFd, addr: SocketAddr) -> io::Result<()> {
    rustix::net::bind(fd, &addr).map_err(explain_bind)
}

fn socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    super::addr::socket(super::addr::family(addr), SocketType::STREAM)
}

/// The local address of a connection or a listener.
pub(super) fn local_addr(fd: impl AsFd) -> io::Result<SocketAddr> {
    socket_addr(SockRef::from(&fd).local_addr())
}

/// The peer's address of a connection.
pub(super) fn peer_addr(fd: impl AsFd) -> io::Result<SocketAddr> {
    socket_addr(SockRef::from(&fd).peer_addr())
}

fn socket_addr(addr: io::Result<socket2::SockAddr>) -> io::Result<SocketAddr> {
    addr?.as_socket().ok_or_else(|| io::Error::other("not an internet address"))
}

/// A TCP connection. It belongs to its loop; see [the module](super).
///
/// Dropping it closes the connection, and never waits (but see [`set_linger`](Self::set_linger)).
/// Written bytes are still delivered, unless received bytes are unread. In that case the kernel
/// resets the connection: the peer's next read or write fails (`ConnectionReset`), and the peer may
/// lose bytes that it has not read yet. To avoid this, [shut down](Self::shutdown) this side, and
/// read to the end before you drop the stream.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct TcpStream {
    io: StreamIo,
}

read_methods!(TcpStream);
write_methods!(TcpStream);
stream_methods!(TcpStream);

impl TcpStream {
    /// Connects to the first address that answers. It tries the addresses one after the other.
    ///
    /// # Cancel safety
    /// Cancel-safe: dropping the future ends the attempt.
    ///
    /// # Errors
    /// The error of the last address; the lookup failed; no loop runs on this thread; no
    /// descriptors or local ports are left. The only time limit is the kernel's (about two
    /// minutes), so use [`timeout`](crate::time::timeout).
    pub async fn connect(addr: impl Resolve) -> io::Result<Self> {
        let mut last = None;
        for addr in resolve(addr).await? {
            let attempt = async { Self::connect_by(socket(addr)?, addr).await };
            match attempt.await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(super::resolve::no_addresses))
    }

    /// Connects a socket that is not connected yet.
    pub(super) async fn connect_by(fd: OwnedFd, addr: SocketAddr) -> io::Result<Self> {
        let in_progress = match rustix::net::connect(&fd, &addr) {
            Ok(()) => false,
            // After EINTR the attempt continues (connect(2)).
            Err(Errno::INPROGRESS | Errno::INTR) => true,
            Err(error) => return Err(crate::sys::limits::explain_connect(error)),
        };
        let io = StreamIo::new(fd, ReadCall::Plain)?;
        if in_progress {
            io.connected().await?;
        }
        Ok(Self { io })
    }

    pub(super) fn from_io(io: StreamIo) -> Self {
        Self { io }
    }

    pub(super) fn into_io(self) -> StreamIo {
        self.io
    }

    pub(super) fn options(&self) -> SockRef<'_> {
        self.io.options()
    }

    /// Waits for a connection that is in progress (`connect` returned `EINPROGRESS`), and puts it
    /// on this loop.
    ///
    /// ```
    /// use wakeful::net::{TcpListener, TcpStream};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// wakeful::block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    ///     socket.set_nonblocking(true)?;
    ///     // It says that the connection is in progress.
    ///     let _ = socket.connect(&listener.local_addr()?.into());
    ///     let stream = TcpStream::connect_in_progress(socket.into()).await?;
    ///     assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future ends the attempt.
    ///
    /// # Errors
    /// The connection was refused or timed out; no loop runs on this thread; no descriptors are
    /// left. `NotConnected`: `connect` was never called on the socket, or other code has taken the
    /// connection's error (`SO_ERROR`).
    pub async fn connect_in_progress(stream: std::net::TcpStream) -> io::Result<Self> {
        let stream = Self::from_std(stream)?;
        stream.io.connected().await?;
        Ok(stream)
    }

    /// Puts a connected stream on this loop. Its first read or write is tried at once, so bytes
    /// that have already arrived are read without an event.
    ///
    /// The stream becomes non-blocking. So do its duplicates, even in other processes, because this
    /// is a property of the open file.
    ///
    /// The connection may still be in progress. Then the first reads and writes wait for the
    /// connection, and return its error if it fails.
    /// [`connect_in_progress`](Self::connect_in_progress) only waits for the connection.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors are left.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { io: StreamIo::new(stream.into(), ReadCall::Plain)? })
    }

    /// Removes the stream from its loop. The socket stays non-blocking, and the loop wakes no more
    /// tasks for it. Unread bytes stay in the socket.
    #[must_use]
    pub fn into_std(self) -> std::net::TcpStream {
        self.io.into_fd().into()
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        local_addr(self.io.fd())
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// Kernel errors; `NotConnected` if the connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        peer_addr(self.io.fd())
    }
}

impl ByteStream for TcpStream {
    #[inline]
    fn io(&self) -> &StreamIo {
        &self.io
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.fd()
    }
}
