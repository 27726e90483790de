//! The address of a server, and how a connection to it is opened.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

use crate::descriptors;

/// The address of a server. It is parsed from `HOST:PORT`, `unix:PATH` or `unix:@NAME`. Parsing a
/// host name looks it up, and takes its first address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// TCP. The name was resolved when the text was parsed.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
    /// A Unix stream socket with a name in the abstract namespace: unix(7).
    Abstract(Vec<u8>),
}

/// The error of parsing a [`Target`]: the text is not an address, or its name cannot be found.
#[derive(Debug, Error)]
#[error(
    "`{text}` is not an address, or its name cannot be found: {why}; expected HOST:PORT, unix:PATH or unix:@NAME"
)]
pub struct InvalidTarget {
    text: String,
    why: String,
}

/// The longest path, or abstract name, of a Unix socket in bytes: unix(7).
const LONGEST_UNIX: usize = 107;

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let invalid = |why: &str| InvalidTarget { text: text.to_owned(), why: why.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(invalid("the path is empty"));
            }
            if path.strip_prefix('@').unwrap_or(path).len() > LONGEST_UNIX {
                return Err(invalid("the path or name of a Unix socket has at most 107 bytes"));
            }
            return match path.strip_prefix('@') {
                Some("") => Err(invalid("the name is empty")),
                Some(name) => Ok(Self::Abstract(name.as_bytes().to_vec())),
                None => Ok(Self::Unix(PathBuf::from(path))),
            };
        }
        let mut addrs = text.to_socket_addrs().map_err(|error| invalid(&error.to_string()))?;
        addrs.next().map(Self::Tcp).ok_or_else(|| invalid("the name has no address"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{}", String::from_utf8_lossy(name)),
        }
    }
}

/// How long it may take to open a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

impl Target {
    /// Returns the host and the port, as HTTP names the server.
    pub(crate) fn authority(&self) -> String {
        match self {
            Self::Tcp(addr) => addr.to_string(),
            Self::Unix(_) | Self::Abstract(_) => "localhost".to_owned(),
        }
    }

    /// Opens a connection and waits until it is established. The socket does not block from then
    /// on.
    pub(crate) fn connect(&self) -> io::Result<OwnedFd> {
        self.connected().map_err(descriptors::explain)
    }

    fn connected(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(addr) => {
                let stream = TcpStream::connect_timeout(addr, CONNECT_LIMIT)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
            Self::Abstract(name) => {
                let addr = net::SocketAddr::from_abstract_name(name)?;
                let stream = UnixStream::connect_addr(&addr)?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
        }
    }

    /// Begins to open a connection. The socket becomes writable once the connection is established
    /// or has failed.
    pub(crate) fn begin_connect(&self) -> io::Result<OwnedFd> {
        self.connecting().map_err(descriptors::explain)
    }

    fn connecting(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = |family| rustix::net::socket_with(family, SocketType::STREAM, flags, None);
        let (fd, outcome) = match self {
            Self::Tcp(addr) => {
                let family =
                    if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let fd = socket(family)?;
                rustix::net::sockopt::set_tcp_nodelay(&fd, true)?;
                let outcome = rustix::net::connect(&fd, addr);
                (fd, outcome)
            }
            Self::Unix(path) => {
                let fd = socket(AddressFamily::UNIX)?;
                let outcome = rustix::net::connect(&fd, &SocketAddrUnix::new(path)?);
                (fd, outcome)
            }
            Self::Abstract(name) => {
                let fd = socket(AddressFamily::UNIX)?;
                let addr = SocketAddrUnix::new_abstract_name(name)?;
                let outcome = rustix::net::connect(&fd, &addr);
                (fd, outcome)
            }
        };
        match outcome {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(fd),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_kinds_are_read_and_printed() {
        for text in ["127.0.0.1:80", "[::1]:8080", "unix:/run/x.sock", "unix:@x"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        assert!("localhost:80".parse::<Target>().is_ok());
    }

    #[test]
    fn what_is_no_address_is_named() {
        let long = format!("unix:/{}", "x".repeat(107));
        for text in ["unix:", "unix:@", &long, "127.0.0.1", ":::", "127.0.0.1:99999"] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
