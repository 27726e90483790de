//! Names to addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};

use crate::task::spawn_blocking;

/// The addresses of `name`: by `getaddrinfo` on the blocking pool, so by `/etc/hosts`, DNS and
/// whatever else the system is set up to ask. What is an address already asks nobody.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # wakeful::block_on(async {
/// let addrs = wakeful::net::resolve(("127.0.0.1", 80)).await?;
/// assert_eq!(addrs, ["127.0.0.1:80".parse().unwrap()]);
/// # Ok(())
/// # })
/// # }
/// ```
///
/// *Cancel-safe*: given up, the lookup goes on in its thread, for nobody.
///
/// # Errors
/// The lookup's; a name without a port; no thread can be started for the lookup (the message names
/// the limits).
pub async fn resolve(name: impl Resolve) -> io::Result<Vec<SocketAddr>> {
    match name.into_name() {
        Name::Known(addrs) => Ok(addrs),
        Name::Lookup(text) => lookup(move || text.to_socket_addrs()).await,
        Name::LookupHost(host, port) => lookup(move || (host, port).to_socket_addrs()).await,
    }
}

async fn lookup<I: Iterator<Item = SocketAddr>>(
    f: impl FnOnce() -> io::Result<I> + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    let addrs = spawn_blocking(move || f().map(Iterator::collect));
    addrs.await.map_err(|error| io::Error::other(format!("cannot look the name up: {error}")))?
}

pub(super) fn no_addresses() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the name has no addresses")
}

/// What can be turned into socket addresses: an address, `"host:port"`, `(host, port)`, a slice of
/// addresses to be tried in turn.
pub trait Resolve: sealed::IntoName {}

#[derive(Debug)]
pub enum Name {
    Known(Vec<SocketAddr>),
    Lookup(String),
    LookupHost(String, u16),
}

mod sealed {
    pub trait IntoName {
        fn into_name(self) -> super::Name;
    }
}
use sealed::IntoName;

macro_rules! known {
    ($($type:ty),*) => { $(
        impl Resolve for $type {}
        impl IntoName for $type {
            fn into_name(self) -> Name {
                Name::Known(vec![self.into()])
            }
        }
    )* };
}
known!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl Resolve for &str {}
impl IntoName for &str {
    fn into_name(self) -> Name {
        match self.parse() {
            Ok(addr) => Name::Known(vec![addr]),
            Err(_) => Name::Lookup(self.to_owned()),
        }
    }
}

impl Resolve for String {}
impl IntoName for String {
    fn into_name(self) -> Name {
        self.as_str().into_name()
    }
}

impl Resolve for (&str, u16) {}
impl IntoName for (&str, u16) {
    fn into_name(self) -> Name {
        match self.0.parse::<IpAddr>() {
            Ok(ip) => (ip, self.1).into_name(),
            Err(_) => Name::LookupHost(self.0.to_owned(), self.1),
        }
    }
}

impl Resolve for (String, u16) {}
impl IntoName for (String, u16) {
    fn into_name(self) -> Name {
        (self.0.as_str(), self.1).into_name()
    }
}

impl Resolve for &[SocketAddr] {}
impl IntoName for &[SocketAddr] {
    fn into_name(self) -> Name {
        Name::Known(self.to_vec())
    }
}
