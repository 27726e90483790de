//! Addresses and listening sockets.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};
use socket2::{Domain, SockAddr, Type};

/// How many connections may wait to be accepted. The kernel's own limit also applies.
const BACKLOG: i32 = 4096;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// IP:PORT.
    Tcp(SocketAddr),
    /// unix:PATH.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some("") => Err("unix: without a path"),
            Some(path) => Ok(Self::Unix(PathBuf::from(path))),
            None => text.parse().map(Self::Tcp).map_err(|_| "neither IP:PORT nor unix:PATH"),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listening socket, which does not block.
#[derive(Debug)]
pub enum Socket {
    /// A TCP socket.
    Tcp(std::net::TcpListener),
    /// A Unix socket.
    Unix(std::os::unix::net::UnixListener),
}

impl Socket {
    /// Makes the socket blocking, for runtimes on `io_uring`: there an operation on a non-blocking
    /// socket fails instead of waiting.
    pub fn blocking(self) -> io::Result<Self> {
        match &self {
            Self::Tcp(listener) => listener.set_nonblocking(false)?,
            Self::Unix(listener) => listener.set_nonblocking(false)?,
        }
        Ok(self)
    }

    /// Returns the address, or `None` for a Unix socket.
    pub fn local_addr(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Some),
            Self::Unix(_) => Ok(None),
        }
    }

    /// Returns the descriptor, whatever kind of socket it is.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        match self {
            Self::Tcp(listener) => listener.into(),
            Self::Unix(listener) => listener.into(),
        }
    }
}

impl Listen {
    /// Listens with one socket. The returned address has the port that the kernel chose.
    pub fn bind(&self) -> Result<(Self, Socket)> {
        self.bind_with(false).with_context(|| format!("cannot listen on {self}"))
    }

    /// Listens with `count` sockets. With TCP each socket has its own queue (`SO_REUSEPORT`): the
    /// kernel chooses one by a hash of the connection's addresses. Unix sockets do not have this,
    /// so there they are one socket.
    ///
    /// A single socket is bound without `SO_REUSEPORT`. Several sockets are bound only after one
    /// without it could be bound. Otherwise a server that is left over from an earlier run would
    /// silently take a part of the connections.
    pub fn bind_many(&self, count: usize) -> Result<(Self, Vec<Socket>)> {
        let (addr, first) = self.bind()?;
        if count == 1 {
            return Ok((addr, vec![first]));
        }
        let sockets: io::Result<_> = match first {
            Socket::Tcp(probe) => {
                drop(probe);
                (0..count).map(|_| Ok(addr.bind_with(true)?.1)).collect()
            }
            Socket::Unix(listener) => {
                (0..count).map(|_| Ok(Socket::Unix(listener.try_clone()?))).collect()
            }
        };
        let sockets = sockets.with_context(|| format!("cannot listen on {addr}"))?;
        Ok((addr, sockets))
    }

    fn bind_with(&self, reuse_port: bool) -> io::Result<(Self, Socket)> {
        let (domain, addr) = match self {
            Self::Tcp(addr) => (Domain::for_address(*addr), SockAddr::from(*addr)),
            Self::Unix(path) => {
                remove_stale(path)?;
                (Domain::UNIX, SockAddr::unix(path)?)
            }
        };
        let socket = socket2::Socket::new(domain, Type::STREAM.nonblocking(), None)?;
        if matches!(self, Self::Tcp(_)) {
            socket.set_reuse_address(true)?;
            socket.set_reuse_port(reuse_port)?;
            // Accepted sockets inherit this option in Linux.
            socket.set_tcp_nodelay(true)?;
        }
        socket.bind(&addr)?;
        socket.listen(BACKLOG)?;
        Ok(match self {
            Self::Tcp(_) => {
                let listener = std::net::TcpListener::from(socket);
                (Self::Tcp(listener.local_addr()?), Socket::Tcp(listener))
            }
            Self::Unix(_) => (self.clone(), Socket::Unix(socket.into())),
        })
    }
}

/// Removes the socket file that an ended server has left.
fn remove_stale(path: &PathBuf) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(data) if data.file_type().is_socket() => match UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)
            }
            Err(error) => Err(error),
        },
        // Binding reports any other problem.
        _ => Ok(()),
    }
}
