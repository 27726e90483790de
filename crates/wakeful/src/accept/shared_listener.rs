use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;

use super::holders::Holders;
use super::socket_file::{self, SocketFile};
use super::syn_filter;
use crate::driver::listener_members::ListenerMembers;
use crate::net::{ListenAddr, Listener, TcpListener, UnixListener, keepalive};
use crate::sys::fork_check::Process;
use crate::sys::limits::explain_call_error;

/// One listening socket for several loops.
///
/// Each loop that accepts has an [`attach`](Self::attach)ed [`Listener`] of its own, watched
/// level-triggered with EPOLLEXCLUSIVE (Linux 4.5): a connection wakes one sleeping loop, and none
/// sits on a connection that another one could take. A loop that was woken and does not accept
/// after all (its `accept` was dropped, say) has another one woken. The kernel gives most
/// connections to the loop that began to wait first; [`ConnectionServer`](super::ConnectionServer)
/// evens that out.
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
    /// Listens on `addr`. A Unix socket's file that is left over from a server that is gone (nobody
    /// answers on it) is replaced; one that somebody listens on is an error.
    ///
    /// # Errors
    /// The address is in use, not one of this host, or needs a privilege; no descriptors left.
    pub fn bind(addr: &ListenAddr) -> io::Result<Self> {
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

    /// Accepts from a socket that listens already, which somebody else has made and may keep: a
    /// service manager (systemd's socket activation), or a parent process.
    ///
    /// What waits in its backlog when a server ends is still there for the next one, as long as
    /// somebody keeps the socket open. So a server that drains lets connections come in, accepts
    /// what there is, and stops; it removes no file.
    ///
    /// # Errors
    /// It is no socket, or does not listen; or it is of another kind than TCP and stream sockets of
    /// Unix.
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
            return Err(invalid("the socket is none of streams"));
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

    /// As [`from_socket`](Self::from_socket), from a server that this one is to succeed. The file
    /// of a Unix socket stays that server's until [`take_file`](Self::take_file).
    ///
    /// # Errors
    /// As for `from_socket`.
    pub fn from_predecessor(socket: OwnedFd) -> io::Result<Self> {
        let mut listener = Self::from_socket(socket)?;
        if let ListenAddr::Unix(path) = &listener.addr {
            listener.file = SocketFile::of_predecessor(path)?.map(Arc::new);
        }
        Ok(listener)
    }

    /// The file of a Unix socket is this listener's from now on, and is removed with its last
    /// clone: the server before [leaves it](Self::leave_file). Nothing happens to another socket.
    pub fn take_file(&self) {
        if let Some(file) = &self.file {
            file.take();
        }
    }

    /// Leaves the file of a Unix socket where it is, also when the last clone is dropped: a server
    /// that succeeds this one has the socket now. Nothing happens to another socket.
    pub fn leave_file(&self) {
        if let Some(file) = &self.file {
            file.leave();
        }
    }

    /// Lets nobody in any more, in no process that has this socket, until the last of them closes
    /// it: each SYN is dropped, so a client tries again a second later and is refused then. What
    /// has come before is still there to be accepted. For whoever knows all these processes, and
    /// that they all end. Nothing happens to a Unix socket: remove its file.
    ///
    /// A server that is alone with its socket does this by itself when it drains.
    ///
    /// # Errors
    /// The kernel refuses a filter (`SO_ATTACH_FILTER`): no memory, or the call is forbidden.
    pub fn let_nobody_in(&self) -> io::Result<()> {
        match self.socket_addr() {
            Some(_) => syn_filter::attach_filter(&self.fd),
            None => Ok(()),
        }
    }

    /// A listener on the same socket for this thread's loop.
    ///
    /// # Errors
    /// No loop runs here; `max_user_watches` is reached.
    pub fn attach(&self) -> io::Result<Listener> {
        // It lends its descriptor.
        self.holders.lend();
        self.attach_to_server()
    }

    /// As [`attach`](Self::attach), for a server, which keeps the listener to itself.
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

    /// The connections that it accepts from now on probe a silent peer, as
    /// [`TcpStream::set_keepalive`](crate::net::TcpStream::set_keepalive) says: the kernel hands
    /// these options on, so that no connection costs a call. Nothing happens to a Unix socket,
    /// whose peers do not vanish.
    ///
    /// # Errors
    /// The kernel's: a number out of its range.
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

    /// Where it listens, with the port that the kernel chose if 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> &ListenAddr {
        &self.addr
    }

    /// The internet address that it listens on, if it is one.
    #[must_use]
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self.addr {
            ListenAddr::Tcp(addr) => Some(addr),
            ListenAddr::Unix(_) | ListenAddr::Abstract(_) => None,
        }
    }
}

/// A server that drains leaves a socket open to the end whose descriptor was lent: see
/// [`AcceptStrategy`](super::AcceptStrategy).
impl AsFd for SharedListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.holders.lend();
        self.fd.as_fd()
    }
}
