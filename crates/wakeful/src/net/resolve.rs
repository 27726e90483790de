//! Names to addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};

use crate::task::{AbortsOnDrop, consume_budget, spawn_without_signals};

/// Looks up the addresses of `name`.
///
/// It calls `getaddrinfo` on the blocking pool, so it uses `/etc/hosts`, DNS and the other sources
/// that the system is configured to use. A numeric address needs no lookup.
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
/// # Cancel safety
/// Cancel-safe. A lookup that a thread has begun finishes in the background. One that waits for a
/// thread is dropped.
///
/// # Errors
/// The lookup failed; the name has no port; no thread can be started for the lookup (the message
/// names the limits).
pub async fn resolve(name: impl Resolve) -> io::Result<Vec<SocketAddr>> {
    // The operation that needs the address, a connect or a bind, may fail at once, and be repeated
    // in a loop.
    consume_budget().await;
    match name.into_name() {
        Name::Addr(addr) => Ok(vec![addr]),
        Name::Known(addrs) => Ok(addrs),
        Name::Lookup(text) => lookup(move || text.to_socket_addrs()).await,
        Name::LookupHost(host, port) => lookup(move || (host, port).to_socket_addrs()).await,
    }
}

/// Returns the first address. If `name` is an address already, this costs nothing.
pub(super) async fn resolve_one(name: impl Resolve) -> io::Result<SocketAddr> {
    match name.into_name() {
        Name::Addr(addr) => Ok(addr),
        name => resolve(name).await?.first().copied().ok_or_else(no_addresses),
    }
}

async fn lookup<I: Iterator<Item = SocketAddr>>(
    f: impl FnOnce() -> io::Result<I> + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    let addrs = AbortsOnDrop(spawn_without_signals(move || f().map(Iterator::collect)));
    addrs.await.map_err(|error| io::Error::other(format!("cannot look the name up: {error}")))?
}

pub(super) fn no_addresses() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the name has no addresses")
}

/// Values that can be turned into socket addresses: an address, `"host:port"`, `(host, port)`,
/// several addresses to be tried in turn, or a reference to one of these.
pub trait Resolve: sealed::IntoName {}

#[derive(Debug)]
pub enum Name {
    Addr(SocketAddr),
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

impl Resolve for Name {}
impl IntoName for Name {
    fn into_name(self) -> Name {
        self
    }
}

/// Implements [`Resolve`] for a type, by value and by reference.
macro_rules! resolves {
    ($($type:ty: $self:ident => $name:expr;)*) => { $(
        impl Resolve for $type {}
        impl IntoName for $type {
            fn into_name(self) -> Name {
                (&self).into_name()
            }
        }
        impl Resolve for &$type {}
        impl IntoName for &$type {
            fn into_name(self) -> Name {
                let $self = self;
                $name
            }
        }
    )* };
}
resolves! {
    SocketAddr: addr => Name::Addr(*addr);
    SocketAddrV4: addr => Name::Addr((*addr).into());
    SocketAddrV6: addr => Name::Addr((*addr).into());
    (IpAddr, u16): addr => Name::Addr((*addr).into());
    (Ipv4Addr, u16): addr => Name::Addr((*addr).into());
    (Ipv6Addr, u16): addr => Name::Addr((*addr).into());
    String: text => text.as_str().into_name();
    (&str, u16): of => host(of.0, of.1);
    (String, u16): of => host(&of.0, of.1);
    (&String, u16): of => host(of.0, of.1);
    Vec<SocketAddr>: addrs => Name::Known(addrs.clone());
}

impl Resolve for &str {}
impl IntoName for &str {
    fn into_name(self) -> Name {
        self.parse().map_or_else(|_| Name::Lookup(self.to_owned()), Name::Addr)
    }
}

fn host(name: &str, port: u16) -> Name {
    match name.parse::<IpAddr>() {
        Ok(ip) => (ip, port).into_name(),
        Err(_) => Name::LookupHost(name.to_owned(), port),
    }
}

impl Resolve for &[SocketAddr] {}
impl IntoName for &[SocketAddr] {
    fn into_name(self) -> Name {
        Name::Known(self.to_vec())
    }
}

impl<const N: usize> Resolve for &[SocketAddr; N] {}
impl<const N: usize> IntoName for &[SocketAddr; N] {
    fn into_name(self) -> Name {
        Name::Known(self.to_vec())
    }
}

#[cfg(all(test, not(wakeful_loom), not(miri)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Waker};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_lookup_that_is_given_up_before_a_thread_begins_it_does_not_run() {
        let start = Instant::now();
        loop {
            let has_run = Arc::new(AtomicBool::new(false));
            let runs = has_run.clone();
            let looked_up = lookup(move || {
                runs.store(true, Ordering::Relaxed);
                Ok(std::iter::empty())
            });
            // It is dropped at once, usually long before a thread wakes.
            let _ = Box::pin(looked_up).as_mut().poll(&mut Context::from_waker(Waker::noop()));
            while Arc::strong_count(&has_run) > 1 {
                std::thread::yield_now();
            }
            if !has_run.load(Ordering::Relaxed) {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "each of them has run");
        }
    }
}
