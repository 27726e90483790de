use std::io;
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
use crate::net::{ListenAddr, Listener, TcpListener, UnixListener, keepalive};
use crate::sys::fork_check::Process;
use crate::sys::limits::explain_call_error;

/// One listening socket for several loops.
///
/// Each accepting loop has an [`attach`](Self::attach)ed [`Listener`] of its own, watched
/// level-triggered with EPOLLEXCLUSIVE (Linux 4.5). A connection wakes one sleeping loop, and no
/// loop keeps a connection waiting that another loop could take. If a loop was woken but does not
/// accept (because its `accept` was dropped, for example), another loop is woken. The kernel gives
/// most connections to the loop that began to wait first;
/// [`ConnectionServer`](super::ConnectionServer) evens that out.
///
/// *Threads*: `Clone`, `Send` and `Sync`; clones share the socket, which closes with the last of
/// them and of their listeners. The file of a Unix socket is removed with the last clone, unless
/// another file has taken its place.
#[derive(Debug, Clone)]
pub struct SharedListener {
    /// Dropped first: see `socket_file.rs`.
    file: Option<Arc<SocketFile>>,
    pub(super) fd: Arc<OwnedFd>,
    addr: ListenAddr,
    /// Of all loops that watch it.
    memberships: Arc<ListenerMembers>,
    pub(super) holders: Holders,
}

impl SharedListener {
    /// Listens on `addr`. If the file of a Unix socket is left over from a server that has ended
    /// (nobody answers on it), it is replaced. If somebody listens on it, that is an error.
    ///
    /// # Errors
    /// The address is in use, not one of this host, or needs a privilege; no descriptors left. The
    /// text says what to do, and does not name the address.
    pub fn bind(addr: &ListenAddr) -> io::Result<Self> {
        Self::listen(addr).map_err(|error| bind_error::explain(addr, error))
    }

    /// Like [`bind`](Self::bind), for a server that listens on `others` already.
    ///
    /// # Errors
    /// As for `bind`. The text names the address, and says if one of `others` is in its way.
    pub fn bind_beside<'a>(
        addr: &ListenAddr,
        others: impl IntoIterator<Item = &'a ListenAddr>,
    ) -> io::Result<Self> {
        Self::bind(addr).map_err(|error| bind_error::explain_beside(addr, others, &error))
    }

    fn listen(addr: &ListenAddr) -> io::Result<Self> {
        let (memberships, holders) =
            (ListenerMembers::new(Process::current()?), Holders::of_new_socket()?);
        let (fd, file, addr) = match addr {
            ListenAddr::Tcp(addr) => {
                let fd = crate::net::listen_tcp(*addr)?;
                // With the port that the kernel chose.
                let local = SockRef::from(&fd).local_addr();
                let local = local.map_err(explain_call_error("getsockname"))?;
                (fd, None, local.as_socket().unwrap_or(*addr).into())
            }
            ListenAddr::Unix(path) => {
                let (fd, file) = socket_file::listen(path)?;
                (fd, Some(Arc::new(file)), addr.clone())
            }
            ListenAddr::Abstract(name) => {
                let unix = rustix::net::SocketAddrUnix::new_abstract_name(name)?;
                (crate::net::listen_unix(&unix)?, None, addr.clone())
            }
        };
        Ok(Self { file, fd: Arc::new(fd), addr, memberships: Arc::new(memberships), holders })
    }

    /// Accepts from a socket that already listens. Another process has made it and may keep it: a
    /// service manager (systemd's socket activation), or a parent process.
    ///
    /// Connections that wait in its backlog when a server ends are still there for the next server,
    /// as long as another process keeps the socket open. So a server that drains does not stop new
    /// connections: it accepts those that are there, and stops. It removes no file.
    ///
    /// # Errors
    /// The descriptor is not a socket, or does not listen; or it is neither a TCP nor a Unix stream
    /// socket.
    pub fn from_socket(socket: OwnedFd) -> io::Result<Self> {
        let (memberships, holders) =
            (ListenerMembers::of_lent(Process::current()?), Holders::of_new_socket()?);
        // Somebody else has it.
        holders.lend();
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let known = SockRef::from(&socket);
        if !known.is_listener().map_err(explain_call_error("getsockopt"))? {
            return Err(invalid("the socket does not listen"));
        }
        if known.r#type()? != socket2::Type::STREAM {
            return Err(invalid("the socket is no stream socket (SOCK_STREAM)"));
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
        Ok(Self { file: None, fd, addr, memberships, holders })
    }

    /// Like [`from_socket`](Self::from_socket), for the socket of a server that this one is about
    /// to succeed. The file of a Unix socket stays with that server until
    /// [`take_file`](Self::take_file). If it is gone, or another server's by now,
    /// [`check_file`](Self::check_file) says so, and this listener never removes it. To tell, this
    /// connects to the file once, and closes that connection.
    ///
    /// # Errors
    /// The same as for `from_socket`.
    pub fn from_predecessor(socket: OwnedFd) -> io::Result<Self> {
        let mut listener = Self::from_socket(socket)?;
        if let ListenAddr::Unix(path) = &listener.addr {
            listener.file = Some(Arc::new(SocketFile::of_predecessor(path, listener.fd.as_fd())?));
        }
        Ok(listener)
    }

    /// Takes over the file of a Unix socket: it is removed with this listener's last clone. The
    /// predecessor [leaves it](Self::leave_file). It has no effect on other sockets.
    pub fn take_file(&self) {
        if let Some(file) = &self.file {
            file.take();
        }
    }

    /// Keeps the file of a Unix socket even when the last clone is dropped, because a successor has
    /// the socket now. It has no effect on other sockets.
    pub fn leave_file(&self) {
        if let Some(file) = &self.file {
            file.leave();
        }
    }

    /// Checks that the file of a Unix socket is still this listener's own: somebody may have
    /// removed it, or another server may have put its own there. This listener cannot make it anew,
    /// as only `bind` does. It has no effect on other sockets, nor on one that came by
    /// [`from_socket`](Self::from_socket).
    ///
    /// # Errors
    /// The file is gone (`NotFound`) or not this listener's (`AddrInUse`). The text names the file,
    /// and says what to do.
    pub fn check_file(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.check())
    }

    /// Stops new connections in every process that has this socket, until the last of them closes
    /// it. Each SYN is dropped, so a client tries again a second later, and is refused then.
    /// Connections that have arrived before can still be accepted. Use it only if you know that all
    /// these processes will end. It has no effect on a Unix socket: remove its file instead.
    ///
    /// A server that is the only holder of its socket does this itself when it drains.
    ///
    /// # Errors
    /// The kernel refuses a filter (`SO_ATTACH_FILTER`): no memory, or the call is forbidden.
    pub fn let_nobody_in(&self) -> io::Result<()> {
        match self.socket_addr() {
            Some(_) => syn_filter::attach_filter(&self.fd),
            None => Ok(()),
        }
    }

    /// Returns a listener on the same socket for this thread's loop.
    ///
    /// # Errors
    /// No loop runs here; `max_user_watches` is reached.
    pub fn attach(&self) -> io::Result<Listener> {
        // It lends its descriptor.
        self.holders.lend();
        self.attach_to_server()
    }

    /// Like [`attach`](Self::attach), for a server, which keeps the listener to itself.
    pub(super) fn attach_to_server(&self) -> io::Result<Listener> {
        Ok(match self.addr {
            ListenAddr::Tcp(_) => {
                Listener::Tcp(TcpListener::attach(self.fd.clone(), &self.memberships)?)
            }
            ListenAddr::Unix(_) | ListenAddr::Abstract(_) => {
                Listener::Unix(UnixListener::attach(self.fd.clone(), &self.memberships)?)
            }
        })
    }

    /// Makes connections that are accepted from now on probe a silent peer, as
    /// [`TcpStream::set_keepalive`](crate::net::TcpStream::set_keepalive) says. Accepted sockets
    /// inherit these options from the listener, so there is no system call per connection. It has
    /// no effect on a Unix socket, whose peers do not vanish.
    ///
    /// # Errors
    /// Kernel errors: a number out of its range.
    pub fn set_keepalive(
        &self,
        idle: Duration,
        interval: Duration,
        retries: u32,
    ) -> io::Result<()> {
        if self.socket_addr().is_none() {
            return Ok(());
        }
        SockRef::from(&*self.fd).set_tcp_keepalive(&keepalive(idle, interval, retries))
    }

    pub(super) fn is_lent(&self) -> bool {
        self.memberships.is_lent()
    }

    /// Keeps the socket file, if there is one, without keeping the socket open.
    pub(super) fn file(&self) -> Option<Arc<SocketFile>> {
        self.file.clone()
    }

    /// Returns the address on which it listens. If the port was 0, the address has the port that
    /// the kernel chose.
    #[must_use]
    pub fn local_addr(&self) -> &ListenAddr {
        &self.addr
    }

    /// Returns the internet address on which it listens, if it is one.
    #[must_use]
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self.addr {
            ListenAddr::Tcp(addr) => Some(addr),
            ListenAddr::Unix(_) | ListenAddr::Abstract(_) => None,
        }
    }
}

/// The first listener that has the socket of one before it.
pub(super) fn given_twice(listeners: &[SharedListener]) -> Option<&SharedListener> {
    let is_known = |number: usize, listener: &SharedListener| {
        listeners[..number].iter().any(|before| Arc::ptr_eq(&before.fd, &listener.fd))
    };
    let mut numbered = listeners.iter().enumerate();
    numbered.find(|(number, listener)| is_known(*number, listener)).map(|(_, listener)| listener)
}

/// A server that drains leaves a socket open to the end whose descriptor was lent: see
/// [`AcceptStrategy`](super::AcceptStrategy).
impl AsFd for SharedListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.holders.lend();
        self.fd.as_fd()
    }
}
