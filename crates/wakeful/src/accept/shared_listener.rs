use std::io;
use std::iter;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;

use super::bind_error;
use super::holders::Holders;
use super::socket_file::{self, SocketFile};
use super::syn_filter;
use crate::driver::listener_members::ListenerMembers;
use crate::driver::membership::Joining;
use crate::net::{ListenAddr, Listener, TcpListener, UnixListener, keepalive};
use crate::sys::fork_check::Process;
use crate::sys::limits::explain_call_error;

/// One listening socket for several loops.
///
/// Each accepting loop has its own [`Listener`], made by [`attach`](Self::attach). Its epoll
/// watches the socket level-triggered, with EPOLLEXCLUSIVE (Linux 4.5). A connection wakes one
/// sleeping loop, and never waits for a busy loop while another loop could take it. If a loop was
/// woken but does not accept (for example, because its `accept` was dropped), another loop is
/// woken. The kernel gives most connections to the loop that began to wait first. A
/// [`ConnectionServer`](super::ConnectionServer) corrects this.
///
/// Clones share the socket. It closes when the last clone and the last [`Listener`] are dropped.
/// The file of a Unix socket is removed with the last clone, unless another file has taken its
/// place.
///
/// # Threads
/// `Clone`, `Send` and `Sync`.
#[derive(Debug, Clone)]
pub struct SharedListener {
    /// Dropped first: see `socket_file.rs`.
    file: Option<Arc<SocketFile>>,
    pub(super) fd: Arc<OwnedFd>,
    addr: ListenAddr,
    /// The memberships of all loops that watch this listener.
    memberships: Arc<ListenerMembers>,
    pub(super) holders: Holders,
    /// The sockets of the loops after the first one, if each loop has its own: `port_group.rs`.
    pub(super) others: Option<Arc<[Arc<OwnedFd>]>>,
}

impl SharedListener {
    /// Listens on `addr`. If the file of a Unix socket is left over from a server that has ended
    /// (no process listens on it), the file is replaced.
    ///
    /// # Errors
    /// The address is in use, is not one of this host, or needs a privilege; or no descriptors are
    /// left. The message says what to do, and does not name the address.
    pub fn bind(addr: &ListenAddr) -> io::Result<Self> {
        Self::listen(addr).map_err(|error| bind_error::explain(addr, error))
    }

    /// Like [`bind`](Self::bind), for a server that already listens on `others`.
    ///
    /// # Errors
    /// The same as for `bind`. The message names the address, and says if it is in use by one of
    /// `others`.
    pub fn bind_beside<'a>(
        addr: &ListenAddr,
        others: impl IntoIterator<Item = &'a ListenAddr>,
    ) -> io::Result<Self> {
        Self::bind(addr).map_err(|error| bind_error::explain_beside(addr, others, &error))
    }

    fn listen(addr: &ListenAddr) -> io::Result<Self> {
        let holders = Holders::of_new_socket()?;
        let (fd, file, addr) = match addr {
            ListenAddr::Tcp(addr) => return Self::tcp(*addr, holders, crate::net::listen_tcp),
            ListenAddr::Unix(path) => {
                let (fd, file) = socket_file::listen(path)?;
                (fd, Some(Arc::new(file)), addr.clone())
            }
            ListenAddr::Abstract(name) => {
                let unix = rustix::net::SocketAddrUnix::new_abstract_name(name)?;
                (crate::net::listen_unix(&unix)?, None, addr.clone())
            }
        };
        let memberships = Arc::new(ListenerMembers::new(Process::current()?));
        Ok(Self { file, fd: Arc::new(fd), addr, memberships, holders, others: None })
    }

    /// Makes a socket with `listen`. `holders` must be made before the socket is bound.
    pub(super) fn tcp(
        addr: SocketAddr,
        holders: Holders,
        listen: impl FnOnce(SocketAddr) -> io::Result<OwnedFd>,
    ) -> io::Result<Self> {
        let memberships = Arc::new(ListenerMembers::new(Process::current()?));
        let fd = listen(addr)?;
        // The local address contains the port that the kernel chose.
        let local = SockRef::from(&fd).local_addr().map_err(explain_call_error("getsockname"))?;
        let addr = local.as_socket().unwrap_or(addr).into();
        Ok(Self { file: None, fd: Arc::new(fd), addr, memberships, holders, others: None })
    }

    /// Makes a `SharedListener` from a socket that already listens, and that another process may
    /// keep open: a service manager (systemd's socket activation), or a parent process.
    ///
    /// Connections that wait in its backlog when a server ends remain there for the next server, as
    /// long as another process keeps the socket open. So a draining server does not keep new
    /// clients out: it accepts the connections in the backlog, and stops. It does not remove the
    /// file of a Unix socket.
    ///
    /// # Errors
    /// The descriptor is not a socket, does not listen, or is neither a TCP nor a Unix stream
    /// socket.
    pub fn from_socket(socket: OwnedFd) -> io::Result<Self> {
        if !SockRef::from(&socket).is_listener().map_err(explain_call_error("getsockopt"))? {
            return Err(invalid("the socket does not listen"));
        }
        Self::from_master(socket)
    }

    /// Like [`from_socket`](Self::from_socket), for a process that is to serve several listeners of
    /// a master. It is no error if other code has shut the socket down (`ss -K`, shutdown(2)). A
    /// server then accepts nothing there, and serves its other listeners. If it has no other,
    /// [`Serving::failure`](super::Serving::failure) completes.
    ///
    /// # Errors
    /// The descriptor is neither a TCP nor a Unix stream socket.
    pub fn from_master(socket: OwnedFd) -> io::Result<Self> {
        let (memberships, holders) =
            (ListenerMembers::of_lent(Process::current()?), Holders::of_new_socket()?);
        // The caller may hold other copies of the socket.
        holders.lend();
        let known = SockRef::from(&socket);
        if known.r#type()? != socket2::Type::STREAM {
            return Err(invalid("the socket is not a stream socket (SOCK_STREAM)"));
        }
        let addr = known.local_addr().map_err(explain_call_error("getsockname"))?;
        let addr = match (addr.as_socket(), addr.as_pathname(), addr.as_abstract_namespace()) {
            (Some(addr), ..) => ListenAddr::Tcp(addr),
            (None, Some(path), _) => ListenAddr::Unix(path.to_owned()),
            (None, None, Some(name)) => ListenAddr::Abstract(name.into()),
            (None, None, None) => return Err(invalid("the socket is neither TCP nor Unix")),
        };
        let set = known.set_nonblocking(true).and_then(|()| known.set_cloexec(true));
        set.map_err(explain_call_error("fcntl"))?;
        let (fd, memberships) = (Arc::new(socket), Arc::new(memberships));
        Ok(Self { file: None, fd, addr, memberships, holders, others: None })
    }

    /// Like [`from_master`](Self::from_master), for the socket of a server that this one will
    /// replace. The old server owns the file of a Unix socket until [`take_file`](Self::take_file)
    /// is called. If the file is gone, or belongs to another server by now,
    /// [`check_file`](Self::check_file) says so, and this listener never removes the file. To find
    /// out whose file it is, this call connects to the file once, and closes that connection.
    ///
    /// # Errors
    /// The same as for `from_master`.
    pub fn from_predecessor(socket: OwnedFd) -> io::Result<Self> {
        let mut listener = Self::from_master(socket)?;
        if let ListenAddr::Unix(path) = &listener.addr {
            listener.file = Some(Arc::new(SocketFile::of_predecessor(path, listener.fd.as_fd())?));
        }
        Ok(listener)
    }

    /// Takes over the file of a Unix socket: the file is removed with this listener's last clone.
    /// The old server must call [`leave_file`](Self::leave_file). This has no effect on other
    /// sockets.
    pub fn take_file(&self) {
        if let Some(file) = &self.file {
            file.take();
        }
    }

    /// Keeps the file of a Unix socket when the last clone is dropped, because a new server uses
    /// the socket now. This has no effect on other sockets.
    pub fn leave_file(&self) {
        if let Some(file) = &self.file {
            file.leave();
        }
    }

    /// Checks that the file of a Unix socket still belongs to this listener. The file may have been
    /// removed, or replaced by another server's file. This listener cannot create it again: only
    /// `bind` does. For other sockets, and for those of [`from_socket`](Self::from_socket), the
    /// check always succeeds.
    ///
    /// # Errors
    /// The file is gone (`NotFound`), or belongs to another listener (`AddrInUse`). The message
    /// names the file, and says what to do.
    pub fn check_file(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.check())
    }

    /// Stops new connections to this socket, in all processes that have it. This cannot be undone:
    /// it lasts until the last of these processes closes the socket. So use it only if you know
    /// that all of them will end.
    ///
    /// The kernel drops each SYN. A client sends its SYN again a second later, and is refused if
    /// the socket is closed by then. A client of a Unix socket is refused at once. Connections that
    /// arrived before can still be accepted. A server that drains after this call serves all
    /// connections of the backlog, and leaves none to another process.
    ///
    /// From then on a Unix socket is always readable, so a loop that waits for its connections does
    /// not sleep. Let it drain soon.
    ///
    /// A draining server does the same for a socket that no other process or code has, and removes
    /// the file of a Unix socket instead.
    ///
    /// # Without CAP_NET_ADMIN
    /// Newer kernels (Linux 6.18.44, for one) refuse filters of TCP sockets without this
    /// capability. Then the socket's least TTL (`IP_MINTTL`, `IPV6_MINHOPCOUNT`) becomes 255, and a
    /// neighbour on the same link that begins with a TTL of 255 still comes in. A connection whose
    /// handshake completes later inherits the least TTL. The kernel drops what its peer sends until
    /// both options of the connection are 0. A server of this crate sets them if it has the socket
    /// by [`from_socket`](Self::from_socket) or [`from_master`](Self::from_master), or if its own
    /// process has called this. Other code must do it. (So a connection of such a socket loses a
    /// least TTL of 255 that the program itself has set on the listener.)
    ///
    /// # Errors
    /// The kernel refuses the filter (`SO_ATTACH_FILTER`) because no memory is left, or refuses all
    /// options of sockets.
    pub fn let_nobody_in(&self) -> io::Result<()> {
        if self.socket_addr().is_none() {
            // The filter holds no client of a Unix socket back. It tells the others who have it.
            syn_filter::shut_down(&self.fd)?;
        }
        self.sockets().try_for_each(|socket| syn_filter::attach_filter(socket))
    }

    /// Makes each connection wake all waiting loops, instead of one, in every process that makes
    /// this call. Call it before loops [`attach`](Self::attach) or a server starts.
    ///
    /// Use it if several processes share the socket, any of them may be killed, and connections are
    /// rare. If the kernel has just woken a process for a connection, and that process is killed
    /// before it accepts, the kernel wakes no other process until the next connection comes. (The
    /// workers of a master need this only for sockets that a group without a
    /// [`Sibling`](super::Sibling) serves. In groups that have one, the other workers take over
    /// when the master [reports](super::Siblings::remove) the death.)
    pub fn wake_every_loop(&self) {
        self.memberships.wake_all();
    }

    /// Returns a listener on the same socket for this thread's loop.
    ///
    /// # Errors
    /// No loop runs on this thread; or `max_user_watches` is reached.
    pub fn attach(&self) -> io::Result<Listener> {
        // The attached listener gives its descriptor to user code.
        self.holders.lend();
        self.attach_to_server(Joining::AtOnce)
    }

    /// Like [`attach`](Self::attach), for a server, which does not show the listener to user code.
    pub(super) fn attach_to_server(&self, joining: Joining) -> io::Result<Listener> {
        Ok(match self.addr {
            ListenAddr::Tcp(_) => {
                Listener::Tcp(TcpListener::attach(self.fd.clone(), &self.memberships, joining)?)
            }
            ListenAddr::Unix(_) | ListenAddr::Abstract(_) => {
                Listener::Unix(UnixListener::attach(self.fd.clone(), &self.memberships, joining)?)
            }
        })
    }

    /// Makes connections that are accepted from now on probe a silent peer, as
    /// [`TcpStream::set_keepalive`](crate::net::TcpStream::set_keepalive) does. Accepted sockets
    /// inherit these options from the listener, so there is no system call per connection. It has
    /// no effect on a Unix socket, whose peers cannot vanish silently.
    ///
    /// # Errors
    /// The kernel refuses a number that is out of range.
    pub fn set_keepalive(
        &self,
        idle: Duration,
        interval: Duration,
        retries: u32,
    ) -> io::Result<()> {
        if self.socket_addr().is_none() {
            return Ok(());
        }
        let keepalive = keepalive(idle, interval, retries);
        self.sockets().try_for_each(|socket| SockRef::from(&**socket).set_tcp_keepalive(&keepalive))
    }

    /// The only socket, or the sockets of all loops.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &Arc<OwnedFd>> {
        iter::once(&self.fd).chain(self.others.iter().flat_map(|others| others.iter()))
    }

    pub(super) fn is_lent(&self) -> bool {
        self.memberships.is_lent()
    }

    /// Keeps the socket file, if there is one, without keeping the socket open.
    pub(super) fn file(&self) -> Option<Arc<SocketFile>> {
        self.file.clone()
    }

    /// Returns the address of the socket. If the port was 0, the address has the port that the
    /// kernel chose.
    #[must_use]
    pub fn local_addr(&self) -> &ListenAddr {
        &self.addr
    }

    /// Returns the address of the socket, if it is an internet address.
    #[must_use]
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self.addr {
            ListenAddr::Tcp(addr) => Some(addr),
            ListenAddr::Unix(_) | ListenAddr::Abstract(_) => None,
        }
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// The first listener whose socket an earlier one in the list has, too.
pub(super) fn given_twice(listeners: &[SharedListener]) -> Option<&SharedListener> {
    let is_known = |number: usize, listener: &SharedListener| {
        listeners[..number].iter().any(|before| Arc::ptr_eq(&before.fd, &listener.fd))
    };
    let mut numbered = listeners.iter().enumerate();
    numbered.find(|(number, listener)| is_known(*number, listener)).map(|(_, listener)| listener)
}

/// Returns the descriptor. After this call a draining server no longer keeps new clients out of
/// this socket, because other code may use the descriptor. See
/// [`AcceptStrategy`](super::AcceptStrategy).
impl AsFd for SharedListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.holders.lend();
        self.fd.as_fd()
    }
}
