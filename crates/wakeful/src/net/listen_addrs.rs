//! What a server is asked to listen on, as addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};

use super::addr::ListenAddr;
use super::resolve::no_addresses;

/// Values that name an address to listen on.
///
/// These are a [`ListenAddr`], the strings `unix:PATH` and `unix:@NAME`, and all values that
/// [`std::net::TcpListener::bind`] accepts: a socket address, an IP address or host name with a
/// port, a string such as `127.0.0.1:8080`, `[::1]:8080` or `localhost:8080`, or a slice of
/// addresses.
///
/// ```
/// use wakeful::net::ToListenAddrs;
///
/// # fn main() -> std::io::Result<()> {
/// assert_eq!("unix:/run/x.sock".to_listen_addrs()?, ["unix:/run/x.sock".parse().unwrap()]);
/// let addrs = "localhost:8080".to_listen_addrs()?;
/// assert!(addrs.iter().any(|addr| addr.to_string() == "127.0.0.1:8080"), "{addrs:?}");
/// # Ok(())
/// # }
/// ```
pub trait ToListenAddrs {
    /// Returns the addresses, at least one. A server listens on the first address that works.
    ///
    /// A host name is looked up (`/etc/hosts`, DNS), which may block this thread for seconds. A
    /// numeric address needs no lookup.
    ///
    /// # Errors
    /// The string is not an address; or the lookup failed (the message contains the name).
    fn to_listen_addrs(&self) -> io::Result<Vec<ListenAddr>>;
}

impl<T: ToListenAddrs + ?Sized> ToListenAddrs for &T {
    fn to_listen_addrs(&self) -> io::Result<Vec<ListenAddr>> {
        (**self).to_listen_addrs()
    }
}

macro_rules! one {
    ($($type:ty),*) => { $(
        impl ToListenAddrs for $type {
            fn to_listen_addrs(&self) -> io::Result<Vec<ListenAddr>> {
                Ok(vec![SocketAddr::from(*self).into()])
            }
        }
    )* };
}
one!(
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16),
    ([u8; 4], u16)
);

impl ToListenAddrs for ListenAddr {
    fn to_listen_addrs(&self) -> io::Result<Vec<ListenAddr>> {
        Ok(vec![self.clone()])
    }
}

impl ToListenAddrs for [SocketAddr] {
    fn to_listen_addrs(&self) -> io::Result<Vec<ListenAddr>> {
        at_least_one(self.iter().copied())
    }
}

impl<const N: usize> ToListenAddrs for [SocketAddr; N] {
    fn to_listen_addrs(&self) -> io::Result<Vec<ListenAddr>> {
        self[..].to_listen_addrs()
    }
}

impl ToListenAddrs for str {
    fn to_listen_addrs(&self) -> io::Result<Vec<ListenAddr>> {
        match self.parse() {
            Ok(addr) => Ok(vec![addr]),
            Err(_) if names_a_host(self) => look_up(self, self.to_socket_addrs()),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidInput, error)),
        }
    }
}

impl ToListenAddrs for String {
    fn to_listen_addrs(&self) -> io::Result<Vec<ListenAddr>> {
        self.as_str().to_listen_addrs()
    }
}

impl ToListenAddrs for (&str, u16) {
    fn to_listen_addrs(&self) -> io::Result<Vec<ListenAddr>> {
        look_up(&format!("{}:{}", self.0, self.1), self.to_socket_addrs())
    }
}

impl ToListenAddrs for (String, u16) {
    fn to_listen_addrs(&self) -> io::Result<Vec<ListenAddr>> {
        (self.0.as_str(), self.1).to_listen_addrs()
    }
}

/// Does the text have the form HOST:PORT?
fn names_a_host(text: &str) -> bool {
    let host_and_port = text.rsplit_once(':');
    host_and_port.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

fn look_up(
    name: &str,
    addrs: io::Result<impl Iterator<Item = SocketAddr>>,
) -> io::Result<Vec<ListenAddr>> {
    addrs
        .and_then(at_least_one)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot look up {name:?}: {error}")))
}

fn at_least_one(addrs: impl Iterator<Item = SocketAddr>) -> io::Result<Vec<ListenAddr>> {
    let addrs: Vec<ListenAddr> = addrs.map(ListenAddr::Tcp).collect();
    if addrs.is_empty() { Err(no_addresses()) } else { Ok(addrs) }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    fn tcp(addrs: impl ToListenAddrs) -> Vec<SocketAddr> {
        let addrs = addrs.to_listen_addrs().expect("addresses").into_iter();
        let tcp = addrs.map(|addr| match addr {
            ListenAddr::Tcp(addr) => addr,
            other => panic!("{other} is not TCP"),
        });
        tcp.collect()
    }

    /// The comparison is with the standard library, and so with Tokio.
    #[test]
    fn what_a_tcp_listener_takes_is_the_same_here() {
        for text in ["127.0.0.1:8080", "[::1]:0", "::1:8080", "localhost:8080", "LOCALHOST:0"] {
            let std: Vec<SocketAddr> = text.to_socket_addrs().expect("addresses").collect();
            assert_eq!(tcp(text), std, "{text}");
            assert_eq!(tcp(text.to_owned()), std, "{text}");
            let (host, port) = text.rsplit_once(':').expect("a port");
            let (host, port) = (host.trim_matches(['[', ']']), port.parse().expect("a port"));
            assert_eq!(tcp((host, port)), std, "{text}");
            assert_eq!(tcp((host.to_owned(), port)), std, "{text}");
        }
        let addr: SocketAddr = ([127, 0, 0, 1], 8080).into();
        assert_eq!(tcp(addr), [addr]);
        assert_eq!(tcp((addr.ip(), 8080)), [addr]);
        assert_eq!(tcp((Ipv4Addr::LOCALHOST, 8080)), [addr]);
        assert_eq!(tcp(([127, 0, 0, 1], 8080)), [addr]);
        let six: SocketAddr = (Ipv6Addr::LOCALHOST, 8080).into();
        assert_eq!(tcp((Ipv6Addr::LOCALHOST, 8080)), [six]);
        assert_eq!(tcp(&[addr, six][..]), [addr, six]);
        assert_eq!(tcp([addr, six]), [addr, six]);
    }

    #[test]
    fn what_is_no_address_is_an_error_that_names_it() {
        let texts = ["", "8080", "localhost", ":8080", "unix:", "unix:@", "1.2.3.4:99999", "x:y"];
        for text in texts {
            let error = text.to_listen_addrs().expect_err(text);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{text}");
            assert!(error.to_string().contains(text), "{error}");
        }
        // According to RFC 6761, no host has such a name.
        for error in [
            "nobody.invalid:80".to_listen_addrs().expect_err("no such host"),
            ("nobody.invalid", 80).to_listen_addrs().expect_err("no such host"),
        ] {
            assert!(error.to_string().contains("cannot look up \"nobody.invalid:80\""), "{error}");
        }
        let none: &[SocketAddr] = &[];
        assert!(none.to_listen_addrs().is_err());
    }
}
