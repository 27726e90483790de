//! The address of a server, and how a connection to it is opened.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

use crate::shortage;

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
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The pause between two attempts while a Unix socket's backlog is full. The kernel does not say
/// when there is room.
const RETRY: Duration = Duration::from_millis(1);

/// How long to wait for the kernel before the caller is asked again whether to continue.
const SLICE: Duration = Duration::from_millis(10);

impl Target {
    /// Returns the host and the port, as HTTP names the server.
    pub(crate) fn authority(&self) -> String {
        match self {
            Self::Tcp(addr) => addr.to_string(),
            Self::Unix(_) | Self::Abstract(_) => "localhost".to_owned(),
        }
    }

    /// Opens a connection and waits until it is established, for at most `limit`. The socket does
    /// not block. A blocking connect(2) would wait without a limit while a Unix socket's backlog is
    /// full.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] if `go_on` returned `false`. It is asked at least every 10
    /// ms, and once before the first attempt.
    pub(crate) fn connect(
        &self,
        limit: Duration,
        go_on: &mut dyn FnMut() -> bool,
    ) -> io::Result<OwnedFd> {
        self.connected(limit, go_on).map_err(shortage::explain)
    }

    fn connected(&self, limit: Duration, go_on: &mut dyn FnMut() -> bool) -> io::Result<OwnedFd> {
        let deadline = Instant::now() + limit;
        let fd = self.socket()?;
        while go_on() {
            // While a connection is on its way, another connect(2) returns how far it is.
            let why = match self.connect_on(&fd) {
                Ok(()) => return Ok(fd),
                Err(why @ (Errno::INPROGRESS | Errno::ALREADY | Errno::AGAIN | Errno::INTR)) => why,
                Err(error) => return Err(error.into()),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            match why {
                Errno::AGAIN if left.is_zero() => return Err(why.into()),
                _ if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
                Errno::AGAIN => thread::sleep(RETRY.min(left)),
                _ => wait_until_writable(&fd, SLICE.min(left))?,
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }

    /// Begins to open a connection. The socket becomes writable once the connection is established
    /// or has failed.
    ///
    /// # Errors
    /// Those of the kernel as they are. [`io::ErrorKind::WouldBlock`] means that the backlog of a
    /// Unix socket is full.
    pub(crate) fn begin_connect(&self) -> io::Result<OwnedFd> {
        let fd = self.socket()?;
        match self.connect_on(&fd) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
            Err(error) => Err(error.into()),
        }
    }

    fn socket(&self) -> rustix::io::Result<OwnedFd> {
        let family = match self {
            Self::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Self::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Self::Unix(_) | Self::Abstract(_) => AddressFamily::UNIX,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        if matches!(self, Self::Tcp(_)) {
            rustix::net::sockopt::set_tcp_nodelay(&fd, true)?;
        }
        Ok(fd)
    }

    fn connect_on(&self, fd: &OwnedFd) -> rustix::io::Result<()> {
        match self {
            Self::Tcp(addr) => rustix::net::connect(fd, addr),
            Self::Unix(path) => rustix::net::connect(fd, &SocketAddrUnix::new(path)?),
            Self::Abstract(name) => {
                rustix::net::connect(fd, &SocketAddrUnix::new_abstract_name(name)?)
            }
        }
    }
}

fn wait_until_writable(fd: &OwnedFd, time: Duration) -> io::Result<()> {
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(fd, PollFlags::OUT)], Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{self, UnixListener};

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

    /// A Unix socket whose backlog is full: nobody accepts.
    fn full() -> (UnixListener, Target, Vec<OwnedFd>) {
        let name = format!("wakeful-full-{}-{:?}", std::process::id(), thread::current().id());
        let addr = net::SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&addr).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let target: Target = format!("unix:@{name}").parse().unwrap();
        let waiting = std::iter::from_fn(|| target.begin_connect().ok()).take(1000).collect();
        let full = target.begin_connect().unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        (listener, target, waiting)
    }

    #[test]
    fn a_full_backlog_is_waited_for_within_the_limit() {
        let (listener, target, _waiting) = full();
        let error = target.connect(Duration::from_millis(20), &mut || true).unwrap_err();
        assert!(error.to_string().contains("backlog is full"), "{error}");
        // A server that accepts after all.
        let mut asked = 0;
        let connected = target.connect(Duration::from_secs(60), &mut || {
            asked += 1;
            if asked == 3 {
                listener.accept().unwrap();
            }
            true
        });
        connected.unwrap();
        assert_eq!(asked, 3);
    }

    #[test]
    fn a_caller_that_is_stopped_does_not_wait() {
        let (_listener, target, _waiting) = full();
        let mut asked = 0;
        let connected = target.connect(Duration::from_secs(60), &mut || {
            asked += 1;
            asked < 3
        });
        assert_eq!(connected.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_connection_over_tcp_is_established_or_refused() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::Tcp(listener.local_addr().unwrap());
        let connected = target.connect(CONNECT_LIMIT, &mut || true).unwrap();
        rustix::net::getpeername(&connected).unwrap();
        drop(listener);
        let error = target.connect(CONNECT_LIMIT, &mut || true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
