//! Addresses that cover both kinds of stream.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Where a server listens: `127.0.0.1:8080`, `[::1]:8080`, `unix:PATH`, `unix:@NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddr {
    /// An address and a port; port 0 lets the kernel choose.
    Tcp(SocketAddr),
    /// The path of a socket file. A relative path that begins with `@` is written `unix:./@PATH`.
    Unix(PathBuf),
    /// A name in Linux's abstract namespace, without the leading zero byte: unix(7). It has no file
    /// and no permissions, and disappears with its socket.
    Abstract(Box<[u8]>),
}

impl ListenAddr {
    /// Returns whether a server that listens on one of the two addresses cannot listen on the other
    /// as well. That is so if they are equal, or if they have the same port, and one of them
    /// includes the other (`0.0.0.0` includes all of IPv4, `[::]` all addresses). Port 0 is another
    /// port each time.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let includes = |one: &SocketAddr, other: &SocketAddr| {
            one.ip().is_unspecified() && (one.is_ipv6() || other.is_ipv4())
        };
        match (self, other) {
            (Self::Tcp(one), Self::Tcp(other)) => {
                let is_same_port = one.port() == other.port() && one.port() != 0;
                is_same_port && (one == other || includes(one, other) || includes(other, one))
            }
            _ => self == other,
        }
    }
}

/// The longest path, or abstract name, of a Unix socket in bytes: unix(7).
const LONGEST_UNIX: usize = 107;

/// Why a text is no IP address with a port.
fn why_no_ip(text: &str) -> &'static str {
    if text.contains("://") {
        "an address has no scheme: expected 127.0.0.1:8080, [::1]:8080, unix:PATH, or unix:@NAME"
    } else if text.starts_with("localhost:") {
        "names are not looked up: expected 127.0.0.1 or [::1] instead of localhost"
    } else {
        "expected an IP address and a port, as 127.0.0.1:8080 or [::1]:8080, unix:PATH, or unix:@NAME"
    }
}

impl FromStr for ListenAddr {
    type Err = InvalidListenAddr;

    fn from_str(text: &str) -> Result<Self, InvalidListenAddr> {
        let invalid = |reason| InvalidListenAddr { text: text.to_owned(), reason };
        match text.strip_prefix("unix:") {
            Some("") => Err(invalid("there is no path after `unix:`")),
            Some("@") => Err(invalid("there is no name after `unix:@`")),
            Some(path) if path.strip_prefix('@').unwrap_or(path).len() > LONGEST_UNIX => {
                Err(invalid("the path or name of a Unix socket has at most 107 bytes: unix(7)"))
            }
            Some(path) => Ok(match path.strip_prefix('@') {
                Some(name) => Self::Abstract(name.as_bytes().into()),
                None => Self::Unix(path.into()),
            }),
            None => text.parse().map(Self::Tcp).map_err(|_| invalid(why_no_ip(text))),
        }
    }
}

impl TryFrom<&str> for ListenAddr {
    type Error = InvalidListenAddr;

    fn try_from(text: &str) -> Result<Self, InvalidListenAddr> {
        text.parse()
    }
}

impl TryFrom<&String> for ListenAddr {
    type Error = InvalidListenAddr;

    fn try_from(text: &String) -> Result<Self, InvalidListenAddr> {
        text.parse()
    }
}

impl TryFrom<String> for ListenAddr {
    type Error = InvalidListenAddr;

    fn try_from(text: String) -> Result<Self, InvalidListenAddr> {
        text.parse()
    }
}

/// Splits `addr` into the address without its port, and the port: `("127.0.0.1", 8080)`.
impl TryFrom<(&str, u16)> for ListenAddr {
    type Error = InvalidListenAddr;

    fn try_from((ip, port): (&str, u16)) -> Result<Self, InvalidListenAddr> {
        match ip.parse::<IpAddr>() {
            Ok(ip) => Ok((ip, port).into()),
            Err(_) => Err(InvalidListenAddr {
                text: format!("{ip}:{port}"),
                reason: "expected an IP address before the port",
            }),
        }
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) if path.as_os_str().as_encoded_bytes().starts_with(b"@") => {
                write!(f, "unix:./{}", path.display())
            }
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{}", String::from_utf8_lossy(name)),
        }
    }
}

impl From<SocketAddr> for ListenAddr {
    fn from(addr: SocketAddr) -> Self {
        Self::Tcp(addr)
    }
}

impl From<&SocketAddr> for ListenAddr {
    fn from(addr: &SocketAddr) -> Self {
        Self::Tcp(*addr)
    }
}

impl From<(IpAddr, u16)> for ListenAddr {
    fn from(addr: (IpAddr, u16)) -> Self {
        Self::Tcp(addr.into())
    }
}

impl From<(Ipv4Addr, u16)> for ListenAddr {
    fn from(addr: (Ipv4Addr, u16)) -> Self {
        Self::Tcp(addr.into())
    }
}

impl From<(Ipv6Addr, u16)> for ListenAddr {
    fn from(addr: (Ipv6Addr, u16)) -> Self {
        Self::Tcp(addr.into())
    }
}

impl From<([u8; 4], u16)> for ListenAddr {
    fn from(addr: ([u8; 4], u16)) -> Self {
        Self::Tcp(addr.into())
    }
}

/// The error of parsing a [`ListenAddr`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid address: {reason}")]
pub struct InvalidListenAddr {
    text: String,
    reason: &'static str,
}

/// The address of a connection's peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAddr {
    /// A TCP client.
    Tcp(SocketAddr),
    /// A client of a Unix socket. Its address, which is usually unnamed, is not kept.
    Unix,
}

impl fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

pub(super) fn family(addr: SocketAddr) -> AddressFamily {
    match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

/// A non-blocking socket that a child process does not inherit.
pub(super) fn socket(family: AddressFamily, kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, kind, flags, None)
        .map_err(crate::sys::limits::explain_call("socket"))
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_read_as_they_print() {
        for text in ["127.0.0.1:8080", "[::1]:8080", "unix:/run/a b.sock", "unix:@a b", "unix:./@a"]
        {
            assert_eq!(text.parse::<ListenAddr>().expect("valid").to_string(), text);
        }
        let long = format!("unix:/{}", "x".repeat(LONGEST_UNIX - 1));
        assert!(long.parse::<ListenAddr>().is_ok());
        for text in [format!("{long}x"), format!("unix:@{}x", &long["unix:".len()..])] {
            let error = text.parse::<ListenAddr>().unwrap_err().to_string();
            assert!(error.contains("at most 107 bytes"), "{error}");
        }
        for (text, why) in [("localhost:80", "not looked up"), ("https://unix:/a", "no scheme")] {
            let error = text.parse::<ListenAddr>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(why), "{error}");
        }
        for text in ["", "8080", "localhost", "127.0.0.1", "unix:", "unix:@", "1.2.3.4:99999"] {
            let error = text.parse::<ListenAddr>().expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn all_addresses_overlap_with_each_address_of_the_port() {
        let overlap = |one: &str, other: &str| {
            let (one, other): (ListenAddr, ListenAddr) =
                (one.parse().expect("valid"), other.parse().expect("valid"));
            assert_eq!(one.overlaps(&other), other.overlaps(&one));
            one.overlaps(&other)
        };
        assert!(overlap("127.0.0.1:80", "127.0.0.1:80"));
        assert!(overlap("0.0.0.0:80", "127.0.0.1:80"));
        assert!(overlap("[::]:80", "[::1]:80"));
        assert!(overlap("[::]:80", "127.0.0.1:80"));
        assert!(!overlap("0.0.0.0:80", "[::1]:80"));
        assert!(!overlap("127.0.0.1:0", "127.0.0.1:0"));
        assert!(overlap("unix:@a", "unix:@a"));
        assert!(!overlap("0.0.0.0:80", "127.0.0.1:81"));
        assert!(!overlap("127.0.0.1:80", "127.0.0.2:80"));
        assert!(!overlap("unix:a", "unix:@a"));
    }

    /// Everything that a `TcpListener` can be bound to, except names.
    #[test]
    fn listen_addresses_are_made_of_what_a_tcp_listener_takes() {
        let port = 8080;
        let addr: SocketAddr = ([127, 0, 0, 1], port).into();
        let text = addr.to_string();
        for listen in [
            ListenAddr::try_from(text.as_str()),
            ListenAddr::try_from(&text),
            ListenAddr::try_from(text.clone()),
            ListenAddr::try_from(("127.0.0.1", port)),
        ] {
            assert_eq!(listen, Ok(ListenAddr::Tcp(addr)));
        }
        for listen in [
            ListenAddr::from(addr),
            ListenAddr::from(&addr),
            ListenAddr::from((addr.ip(), port)),
            ListenAddr::from((Ipv4Addr::LOCALHOST, port)),
            ListenAddr::from(([127, 0, 0, 1], port)),
        ] {
            assert_eq!(listen, ListenAddr::Tcp(addr));
        }
        let six = ListenAddr::from((Ipv6Addr::LOCALHOST, port));
        assert_eq!(ListenAddr::try_from(("::1", port)), Ok(six));
        let name = ListenAddr::try_from(("localhost", port)).expect_err("no IP address");
        assert!(name.to_string().contains("localhost:8080"), "{name}");
    }
}
