use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libc::c_int;
use rustix::net::{AddressFamily, SocketType};
use socket2::SockRef;

use super::tcp::{self, TcpListener, TcpStream};
use crate::sys::limits::explain_call;
use crate::sys::socket_options;
use crate::task::consume_budget;

/// A TCP socket that neither listens nor is connected yet. Use it for options that must be set
/// before the socket listens or connects.
///
/// For the default options, [`TcpStream::connect`] and [`TcpListener::bind`] are enough. The socket
/// belongs to no loop until [`connect`](Self::connect) or [`listen`](Self::listen) puts it on the
/// loop of the calling thread. A new socket is non-blocking, and child programs do not inherit it.
/// No other option is set. Options that you set stay with the connection. Connections that a
/// listener accepts inherit most of its options.
///
/// # Examples
///
/// A client that connects from a chosen address, and a listener with a short backlog:
///
/// ```
/// use wakeful::net::TcpSocket;
///
/// # fn main() -> std::io::Result<()> {
/// wakeful::block_on(async {
///     let socket = TcpSocket::new_v4()?;
///     socket.set_reuseaddr(true)?;
///     socket.set_recv_buffer_size(256 * 1024)?;
///     socket.bind(([127, 0, 0, 1], 0).into())?;
///     let listener = socket.listen(128)?;
///
///     let socket = TcpSocket::new_v4()?;
///     socket.set_nodelay(true)?;
///     socket.bind(([127, 0, 0, 2], 0).into())?;
///     let client = socket.connect(listener.local_addr()?).await?;
///
///     let (_server, peer) = listener.accept().await?;
///     assert_eq!(peer, client.local_addr()?);
///     assert_eq!(peer.ip().to_string(), "127.0.0.2");
///     Ok(())
/// })
/// # }
/// ```
///
/// # Threads
/// `Send` and `Sync`: it does no I/O.
#[derive(Debug)]
pub struct TcpSocket {
    fd: OwnedFd,
}

impl TcpSocket {
    /// Makes a socket for IPv4.
    ///
    /// # Errors
    /// No descriptors are left: the message names the limit.
    pub fn new_v4() -> io::Result<Self> {
        Self::new(AddressFamily::INET)
    }

    /// Makes a socket for IPv6. If the socket is bound to `[::]`, it also accepts IPv4, unless
    /// [`set_only_v6`](Self::set_only_v6) or `net.ipv6.bindv6only` forbids it.
    ///
    /// # Errors
    /// The machine has no IPv6 (`EAFNOSUPPORT`). Otherwise, the same as for
    /// [`new_v4`](Self::new_v4).
    pub fn new_v6() -> io::Result<Self> {
        Self::new(AddressFamily::INET6)
    }

    fn new(family: AddressFamily) -> io::Result<Self> {
        Ok(Self { fd: super::addr::socket(family, SocketType::STREAM)? })
    }

    /// Makes a `TcpSocket` from an existing socket that is not connected yet, such as one that
    /// another crate has made and set up. The socket becomes non-blocking. So do its duplicates,
    /// because this is a property of the open file.
    ///
    /// If the connection is already in progress, use [`TcpStream::connect_in_progress`] instead.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn from_std(socket: std::net::TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { fd: socket.into() })
    }

    /// Returns the socket, for use by another crate. It stays non-blocking.
    #[must_use]
    pub fn into_std(self) -> std::net::TcpStream {
        self.fd.into()
    }

    /// Sets `SO_REUSEADDR`: the address can be bound while connections of a former listener are
    /// still in `TIME_WAIT`. [`TcpListener::bind`] always sets it.
    ///
    /// # Errors
    /// Kernel errors, as for all options.
    pub fn set_reuseaddr(&self, reuse: bool) -> io::Result<()> {
        self.options().set_reuse_address(reuse)
    }

    /// Returns what [`set_reuseaddr`](Self::set_reuseaddr) sets.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn reuseaddr(&self) -> io::Result<bool> {
        self.options().reuse_address()
    }

    /// Sets `SO_REUSEPORT`: several sockets of this user that all set it may listen on one port,
    /// and the kernel spreads connections over them. (A server with
    /// [`AcceptStrategy::ReusePort`](crate::accept::AcceptStrategy::ReusePort) does this.)
    ///
    /// # Errors
    /// Kernel errors.
    pub fn set_reuseport(&self, reuse: bool) -> io::Result<()> {
        self.options().set_reuse_port(reuse)
    }

    /// Returns what [`set_reuseport`](Self::set_reuseport) sets.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn reuseport(&self) -> io::Result<bool> {
        self.options().reuse_port()
    }

    /// Sets `IPV6_V6ONLY`, for a socket that will be bound to `[::]`. With true it accepts no IPv4,
    /// so another socket may use the port for IPv4. With false it also accepts IPv4, and peers
    /// appear as `[::ffff:192.0.2.1]` (see
    /// [`Ipv6Addr::to_canonical`](std::net::Ipv6Addr::to_canonical)). Call it before
    /// [`bind`](Self::bind).
    ///
    /// # Errors
    /// Kernel errors: the socket is bound, or is an IPv4 socket.
    pub fn set_only_v6(&self, only_v6: bool) -> io::Result<()> {
        self.options().set_only_v6(only_v6)
    }

    /// Returns what [`set_only_v6`](Self::set_only_v6) sets.
    ///
    /// # Errors
    /// Kernel errors: the socket is an IPv4 socket.
    pub fn only_v6(&self) -> io::Result<bool> {
        self.options().only_v6()
    }

    /// Binds the socket to a network interface (`SO_BINDTODEVICE`). `None` undoes it. A bound
    /// socket sends and receives only through that interface.
    ///
    /// # Errors
    /// There is no such interface; or the socket is already bound to an interface, and this process
    /// lacks `CAP_NET_RAW`.
    pub fn bind_device(&self, interface: Option<&[u8]>) -> io::Result<()> {
        self.options().bind_device(interface)
    }

    /// Sets `TCP_FASTOPEN_CONNECT`. If the server gave this machine a cookie before,
    /// [`connect`](Self::connect) returns at once, and the first write is sent with the SYN, one
    /// round trip earlier (RFC 7413). If the connection is refused, that write, or a read after it,
    /// returns the error. Nothing is sent before the first write, so do not use it for protocols in
    /// which the server speaks first. The kernel may send the first write twice, so use it only for
    /// requests that may be repeated.
    ///
    /// # Errors
    /// Kernel errors: `net.ipv4.tcp_fastopen` forbids it (`EOPNOTSUPP`).
    pub fn set_fastopen_connect(&self, fastopen: bool) -> io::Result<()> {
        socket_options::set(&self.fd, libc::TCP_FASTOPEN_CONNECT, fastopen.into())
    }

    /// Returns what [`set_fastopen_connect`](Self::set_fastopen_connect) sets.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn fastopen_connect(&self) -> io::Result<bool> {
        Ok(socket_options::get(&self.fd, libc::TCP_FASTOPEN_CONNECT)? != 0)
    }

    /// Sets `TCP_FASTOPEN`: the listener accepts bytes that arrive with the SYN. `connections`
    /// limits how many such connections may be in the handshake at a time. With 0, the default, the
    /// listener accepts no such bytes. The kernel ignores this option unless
    /// `net.ipv4.tcp_fastopen` allows it for servers (the flag 2). The kernel may deliver such
    /// bytes twice, as a second connection.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn set_fastopen_backlog(&self, connections: u32) -> io::Result<()> {
        socket_options::set(&self.fd, libc::TCP_FASTOPEN, to_int(connections))
    }

    /// Returns the actual value after [`set_fastopen_backlog`](Self::set_fastopen_backlog).
    ///
    /// # Errors
    /// Kernel errors.
    pub fn fastopen_backlog(&self) -> io::Result<u32> {
        let connections = socket_options::get(&self.fd, libc::TCP_FASTOPEN)?;
        Ok(u32::try_from(connections).unwrap_or(0))
    }

    /// Binds the socket to an address. Port 0 lets the kernel choose a port.
    ///
    /// # Errors
    /// The address is in use (`AddrInUse`), is not one of this machine (`AddrNotAvailable`), is of
    /// another family than the socket, or needs a privilege; the socket is already bound.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        tcp::bind(&self.fd, addr)
    }

    /// Returns the socket's address, which is unspecified before [`bind`](Self::bind).
    ///
    /// # Errors
    /// Kernel errors.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        tcp::local_addr(&self.fd)
    }

    /// Connects to `addr`, on this thread's loop.
    ///
    /// The only time limit is the kernel's (about two minutes): use
    /// [`timeout`](crate::time::timeout).
    ///
    /// # Cancel safety
    /// Dropping the future ends the attempt.
    ///
    /// # Errors
    /// The connection was refused or timed out; `addr` is of another family than the socket; no
    /// loop runs on this thread; no local ports are left.
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        consume_budget().await;
        TcpStream::connect_by(self.fd, addr).await
    }

    /// Listens, on this thread's loop. At most `backlog` established connections wait to be
    /// accepted. (The kernel lowers the number to `net.core.somaxconn`, and allows one more.)
    /// Further clients have to wait.
    ///
    /// If the socket was not bound, it listens on all addresses, on a port that the kernel chooses.
    ///
    /// # Errors
    /// Another socket listens on this address (possible if both set `SO_REUSEADDR`); no loop runs
    /// on this thread; no descriptors are left.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        rustix::net::listen(&self.fd, to_int(backlog)).map_err(explain_call("listen"))?;
        TcpListener::from_fd(self.fd)
    }

    pub(super) fn options(&self) -> SockRef<'_> {
        SockRef::from(&self.fd)
    }
}

/// The kernel reduces the number to its own limit.
fn to_int(number: u32) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
