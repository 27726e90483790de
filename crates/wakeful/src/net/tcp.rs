use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SocketType;
use socket2::{SockRef, TcpKeepalive};

use super::byte_stream::{ByteStream, StreamIo, read_methods, stream_methods, write_methods};
use super::listener_socket::listener_methods;
use super::resolve::{Resolve, resolve};
use crate::driver::registered::Registered;
use crate::priority::Priority;
use crate::sys::limits::explain_call;
use crate::sys::uninit::ReadCall;

/// A listening TCP socket of this loop. One listener for several loops is a
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
/// *Threads*: Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct TcpListener {
    socket: Registered<Arc<OwnedFd>>,
}

listener_methods!(TcpListener);

impl TcpListener {
    /// Listens on the first of the addresses that can be bound, with `SO_REUSEADDR` and the
    /// system's greatest backlog (`net.core.somaxconn`).
    ///
    /// *Cancel-safe*: given up, it leaves no socket behind; a lookup of a name goes on in its
    /// thread, for nobody.
    ///
    /// # Errors
    /// The address is in use, not one of this host, or needs a privilege; the lookup failed; no
    /// loop runs here; no descriptors left.
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

    /// Puts a listener from elsewhere on this loop.
    ///
    /// # Errors
    /// No loop runs here; no descriptors left.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Self::from_fd(listener.into())
    }

    /// Takes the next connection. Several tasks may wait at once. A connection that its peer gave
    /// up before (`ECONNABORTED`) is skipped.
    ///
    /// *Cancel-safe*: a call that has not returned has taken no connection.
    ///
    /// # Errors
    /// No descriptors left: the message names the limit, the connection stays in the backlog, and
    /// the caller should wait before it tries again (see
    /// [`accept::is_shortage`](crate::accept::is_shortage)).
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (fd, peer) = super::accept::next(&self.socket).await?;
        let stream = TcpStream { io: StreamIo::new(fd, ReadCall::Plain)? };
        stream.set_priority(self.socket.priority())?;
        let peer = peer.map_or_else(|| stream.peer_addr(), Ok)?;
        Ok((stream, peer))
    }

    /// The address that it listens on, with the port that the kernel chose if 0 was asked for.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        socket_addr(SockRef::from(&**self.socket.io()).local_addr())
    }
}

/// A non-blocking socket that listens on `addr`.
pub(crate) fn listen(addr: SocketAddr) -> io::Result<OwnedFd> {
    let fd = socket(addr)?;
    start_to_listen(fd, addr)
}

/// As [`listen`], where others that allow it (`SO_REUSEPORT`) may listen already.
pub(crate) fn listen_beside(addr: SocketAddr) -> io::Result<OwnedFd> {
    let fd = socket(addr)?;
    rustix::net::sockopt::set_socket_reuseport(&fd, true).map_err(explain_call("setsockopt"))?;
    start_to_listen(fd, addr)
}

fn start_to_listen(fd: OwnedFd, addr: SocketAddr) -> io::Result<OwnedFd> {
    rustix::net::sockopt::set_socket_reuseaddr(&fd, true).map_err(explain_call("setsockopt"))?;
    rustix::net::bind(&fd, &addr).map_err(explain_call("bind"))?;
    // The kernel lowers it to its own limit.
    rustix::net::listen(&fd, i32::MAX).map_err(explain_call("listen"))?;
    Ok(fd)
}

fn socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    super::addr::socket(super::addr::family(addr), SocketType::STREAM)
}

/// The address at the other end of a connection.
pub(super) fn peer_addr(fd: impl AsFd) -> io::Result<SocketAddr> {
    socket_addr(SockRef::from(&fd).peer_addr())
}

fn socket_addr(addr: io::Result<socket2::SockAddr>) -> io::Result<SocketAddr> {
    addr?.as_socket().ok_or_else(|| io::Error::other("not an internet address"))
}

/// A TCP connection. It belongs to its loop; see [the module](super).
///
/// *Threads*: Neither `Send` nor `Sync`: it stays on its loop's thread.
#[derive(Debug)]
pub struct TcpStream {
    io: StreamIo,
}

read_methods!(TcpStream);
write_methods!(TcpStream);
stream_methods!(TcpStream);

impl TcpStream {
    /// Connects to the first of the addresses that answers, trying one after the other.
    ///
    /// *Cancel-safe*: dropped, it closes the attempt.
    ///
    /// # Errors
    /// The last address's; the lookup failed; no loop runs here; no descriptors, or no local ports,
    /// left. There is no time limit but the kernel's (about two minutes): use
    /// [`timeout`](crate::time::timeout).
    pub async fn connect(addr: impl Resolve) -> io::Result<Self> {
        let mut last = None;
        for addr in resolve(addr).await? {
            match Self::connect_to(addr).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(super::resolve::no_addresses))
    }

    async fn connect_to(addr: SocketAddr) -> io::Result<Self> {
        let fd = socket(addr)?;
        let in_progress = match rustix::net::connect(&fd, &addr) {
            Ok(()) => false,
            // EINTR: the attempt goes on (connect(2)).
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

    /// Puts a connected stream from elsewhere on this loop.
    ///
    /// # Errors
    /// No loop runs here; no descriptors left.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { io: StreamIo::new(stream.into(), ReadCall::Plain)? })
    }

    /// Takes the stream off its loop. It stays non-blocking.
    #[must_use]
    pub fn into_std(self) -> std::net::TcpStream {
        self.io.into_fd().into()
    }

    /// This end's address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        socket_addr(self.io.options().local_addr())
    }

    /// The other end's address.
    ///
    /// # Errors
    /// The kernel's; `NotConnected` once the connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        peer_addr(self.io.fd())
    }

    /// `TCP_NODELAY`: true sends small writes at once, false lets the kernel gather them (Nagle).
    /// Servers that answer with one write per response want it on.
    ///
    /// # Errors
    /// The kernel's, as for all options.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.io.options().set_tcp_nodelay(nodelay)
    }

    /// See [`set_nodelay`](Self::set_nodelay).
    ///
    /// # Errors
    /// The kernel's.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.io.options().tcp_nodelay()
    }

    /// `SO_LINGER`: with `Some`, closing discards what is unsent after that time (whole seconds;
    /// zero resets the connection at once). A loop's thread waits in close for as long, if it is
    /// not zero.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.io.options().set_linger(linger)
    }

    /// See [`set_linger`](Self::set_linger).
    ///
    /// # Errors
    /// The kernel's.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.io.options().linger()
    }

    /// Probes a silent peer after `idle`, then every `interval`, and gives it up after `retries`
    /// probes (`TCP_KEEPIDLE`, `TCP_KEEPINTVL`: whole seconds; `TCP_KEEPCNT`). It is how a
    /// half-open connection is found.
    ///
    /// # Errors
    /// The kernel's: a number out of its range.
    pub fn set_keepalive(
        &self,
        idle: Duration,
        interval: Duration,
        retries: u32,
    ) -> io::Result<()> {
        self.io.options().set_tcp_keepalive(&keepalive(idle, interval, retries))
    }

    /// Stops probing.
    ///
    /// # Errors
    /// The kernel's.
    pub fn unset_keepalive(&self) -> io::Result<()> {
        self.io.options().set_keepalive(false)
    }

    /// Is a silent peer probed?
    ///
    /// # Errors
    /// The kernel's.
    pub fn keepalive(&self) -> io::Result<bool> {
        self.io.options().keepalive()
    }

    /// `SO_SNDBUF`, in bytes. The kernel doubles it and applies its limits (`net.core.wmem_max`).
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.io.options().set_send_buffer_size(bytes)
    }

    /// What the kernel made of [`set_send_buffer_size`](Self::set_send_buffer_size), in bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        self.io.options().send_buffer_size()
    }

    /// `SO_RCVBUF`, in bytes. The kernel doubles it and applies its limits (`net.core.rmem_max`).
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.io.options().set_recv_buffer_size(bytes)
    }

    /// What the kernel made of [`set_recv_buffer_size`](Self::set_recv_buffer_size), in bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        self.io.options().recv_buffer_size()
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

/// See [`TcpStream::set_keepalive`].
pub(crate) fn keepalive(idle: Duration, interval: Duration, retries: u32) -> TcpKeepalive {
    TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(retries)
}
