use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libc::c_int;
use rustix::net::{AddressFamily, SocketType};
use socket2::SockRef;

use super::tcp::{self, TcpListener, TcpStream};
use crate::sys::limits::explain_call;
use crate::sys::socket_options;

/// A TCP socket that neither listens nor is connected: for what has to be set before.
///
/// [`TcpStream::connect`] and [`TcpListener::bind`] need none of it. The socket is on no loop until
/// [`connect`](Self::connect) or [`listen`](Self::listen) puts it on the one of their thread.
/// Nothing is set from the start but that it does not block and that child processes do not inherit
/// it. What is set here stays with the connection, and a listener hands most of it on to the
/// connections that it accepts.
///
/// # Examples
///
/// A client that connects from an address of its own, and a listener with a short backlog:
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
/// `Send` and `Sync`: it has no I/O.
#[derive(Debug)]
pub struct TcpSocket {
    fd: OwnedFd,
}

impl TcpSocket {
    /// Makes a socket for IPv4.
    ///
    /// # Errors
    /// No descriptors left: the message names the limit.
    pub fn new_v4() -> io::Result<Self> {
        Self::new(AddressFamily::INET)
    }

    /// Makes a socket for IPv6. One that is bound to `[::]` takes IPv4 too, unless
    /// [`set_only_v6`](Self::set_only_v6) or `net.ipv6.bindv6only` says otherwise.
    ///
    /// # Errors
    /// The machine has no IPv6 (`EAFNOSUPPORT`); as for [`new_v4`](Self::new_v4).
    pub fn new_v6() -> io::Result<Self> {
        Self::new(AddressFamily::INET6)
    }

    fn new(family: AddressFamily) -> io::Result<Self> {
        Ok(Self { fd: super::addr::socket(family, SocketType::STREAM)? })
    }

    /// Takes a socket from elsewhere that is not connected yet, as one that another crate has made
    /// and set up. It becomes non-blocking, and so do its duplicates: that is a property of the
    /// open file.
    ///
    /// One whose connection is under way already goes to
    /// [`TcpStream::connect_in_progress`] instead.
    ///
    /// # Errors
    /// The kernel's.
    pub fn from_std(socket: std::net::TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { fd: socket.into() })
    }

    /// Gives the socket up, for another crate. It stays non-blocking.
    #[must_use]
    pub fn into_std(self) -> std::net::TcpStream {
        self.fd.into()
    }

    /// Sets `SO_REUSEADDR`: connections of a former listener that are not quite over yet
    /// (`TIME_WAIT`) do not keep this one from the address. [`TcpListener::bind`] always sets it.
    ///
    /// # Errors
    /// The kernel's, as for all options.
    pub fn set_reuseaddr(&self, reuse: bool) -> io::Result<()> {
        self.options().set_reuse_address(reuse)
    }

    /// Returns what [`set_reuseaddr`](Self::set_reuseaddr) sets.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reuseaddr(&self) -> io::Result<bool> {
        self.options().reuse_address()
    }

    /// Sets `SO_REUSEPORT`: several sockets of this user, all of which have set it, listen on one
    /// port, and the kernel spreads connections over them. (See
    /// [`AcceptStrategy::ReusePort`](crate::accept::AcceptStrategy::ReusePort) for a server that
    /// does.)
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_reuseport(&self, reuse: bool) -> io::Result<()> {
        self.options().set_reuse_port(reuse)
    }

    /// Returns what [`set_reuseport`](Self::set_reuseport) sets.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reuseport(&self) -> io::Result<bool> {
        self.options().reuse_port()
    }

    /// Sets `IPV6_V6ONLY`: true keeps IPv4 away from a socket that is bound to `[::]`, so that
    /// another one may have the port for IPv4; false lets it in, with peers as
    /// `[::ffff:192.0.2.1]` (see [`Ipv6Addr::to_canonical`](std::net::Ipv6Addr::to_canonical)). To
    /// be said before [`bind`](Self::bind).
    ///
    /// # Errors
    /// The kernel's: the socket is bound, or is one of IPv4.
    pub fn set_only_v6(&self, only_v6: bool) -> io::Result<()> {
        self.options().set_only_v6(only_v6)
    }

    /// Returns what [`set_only_v6`](Self::set_only_v6) sets.
    ///
    /// # Errors
    /// The kernel's: the socket is one of IPv4.
    pub fn only_v6(&self) -> io::Result<bool> {
        self.options().only_v6()
    }

    /// Binds the socket to a network interface (`SO_BINDTODEVICE`); `None` undoes it. A bound
    /// socket sends and receives by that interface alone.
    ///
    /// # Errors
    /// There is no such interface; another one was said before and this process has not
    /// `CAP_NET_RAW`.
    pub fn bind_device(&self, interface: Option<&[u8]>) -> io::Result<()> {
        self.options().bind_device(interface)
    }

    /// Sets `TCP_FASTOPEN_CONNECT`: to a server that gave this machine a cookie before,
    /// [`connect`](Self::connect) returns at once and the first write travels with the request to
    /// connect, one round trip earlier (RFC 7413). That write, or a read after it, is then what
    /// says that nobody listens. As long as nothing is written nothing is sent: it is not for
    /// protocols in which the server speaks first. The kernel may send that first write twice: it
    /// is for requests that may be repeated.
    ///
    /// # Errors
    /// The kernel's: `net.ipv4.tcp_fastopen` forbids it (`EOPNOTSUPP`).
    pub fn set_fastopen_connect(&self, fastopen: bool) -> io::Result<()> {
        socket_options::set(&self.fd, libc::TCP_FASTOPEN_CONNECT, fastopen.into())
    }

    /// Returns what [`set_fastopen_connect`](Self::set_fastopen_connect) sets.
    ///
    /// # Errors
    /// The kernel's.
    pub fn fastopen_connect(&self) -> io::Result<bool> {
        Ok(socket_options::get(&self.fd, libc::TCP_FASTOPEN_CONNECT)? != 0)
    }

    /// Sets `TCP_FASTOPEN`: a listener takes bytes that come with the request to connect, of
    /// this many connections at once that are not established otherwise yet. 0, the default,
    /// takes none. The kernel ignores it unless `net.ipv4.tcp_fastopen` allows it to servers (2).
    /// The kernel may deliver such bytes twice, as a second connection.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_fastopen_backlog(&self, connections: u32) -> io::Result<()> {
        socket_options::set(&self.fd, libc::TCP_FASTOPEN, to_int(connections))
    }

    /// Returns what the kernel made of [`set_fastopen_backlog`](Self::set_fastopen_backlog).
    ///
    /// # Errors
    /// The kernel's.
    pub fn fastopen_backlog(&self) -> io::Result<u32> {
        let connections = socket_options::get(&self.fd, libc::TCP_FASTOPEN)?;
        Ok(u32::try_from(connections).unwrap_or(0))
    }

    /// Gives the socket its address. Port 0 lets the kernel choose one.
    ///
    /// # Errors
    /// The address is in use (`AddrInUse`), not one of this machine (`AddrNotAvailable`), of
    /// another family than the socket, or needs a privilege; the socket is bound already.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        tcp::bind(&self.fd, addr)
    }

    /// Returns the socket's address, which is unspecified before [`bind`](Self::bind).
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        tcp::local_addr(&self.fd)
    }

    /// Connects to `addr`, on this thread's loop.
    ///
    /// There is no time limit but the kernel's (about two minutes): use
    /// [`timeout`](crate::time::timeout).
    ///
    /// # Cancel safety
    /// Dropped, it closes the attempt.
    ///
    /// # Errors
    /// Nobody listens there, or nobody answered; `addr` is of another family than the socket; no
    /// loop runs here; no local ports left.
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_by(self.fd, addr).await
    }

    /// Listens, on this thread's loop. `backlog` connections may be established and wait to be
    /// accepted (the kernel takes one more, and lowers it to `net.core.somaxconn`); further ones
    /// are kept waiting.
    ///
    /// A socket that was not bound gets a port that the kernel chooses, on all addresses.
    ///
    /// # Errors
    /// Another socket listens there, with `SO_REUSEADDR` as this one; no loop runs here; no
    /// descriptors left.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        rustix::net::listen(&self.fd, to_int(backlog)).map_err(explain_call("listen"))?;
        TcpListener::from_fd(self.fd)
    }

    pub(super) fn options(&self) -> SockRef<'_> {
        SockRef::from(&self.fd)
    }
}

/// The kernel lowers it to its own limit.
fn to_int(number: u32) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
