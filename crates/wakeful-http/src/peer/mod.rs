//! The sender of a request.
//!
//! A connection knows its peer, and sets a thread-local while it polls a request's service. So
//! nothing has to be put into each request, and a request that does not use it pays for two stores.
//! `extract` reads it for axum's handlers.

#[cfg(feature = "axum")]
mod extract;

use std::cell::Cell;
use std::net::SocketAddr;

use wakeful::net::PeerAddr;

use crate::further_request;
use crate::tls::Alpn;
use crate::tls::security::Security;

#[cfg(feature = "axum")]
pub use self::extract::{NoClientCertificate, NoPeer};

thread_local! {
    static CURRENT: Cell<Option<Peer>> = const { Cell::new(None) };
}

/// The sender of a request, and how its connection is protected.
///
/// An axum handler takes it as an argument (feature `axum`, which is on by default):
///
/// ```
/// use axum::{Router, routing::get};
/// use wakeful_http::Peer;
///
/// async fn who(peer: Peer) -> String {
///     format!("{}, by {:?}\n", peer.addr, peer.security)
/// }
///
/// let app: Router = Router::new().route("/", get(who));
/// ```
///
/// Other services call [`Peer::current`]. The client's certificates, if it has sent any, are in
/// [`PeerCertificates`](crate::tls::PeerCertificates), which a handler takes in the same way.
///
/// If a request has a `Peer` among its extensions, handlers get that one as their argument. So a
/// layer may insert the client that a trusted proxy names, and a test may insert any peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The address of the other end of the connection. Behind a proxy it is the proxy's address.
    pub addr: PeerAddr,
    /// What protects the connection.
    pub security: Security,
    /// The protocol that both sides agreed on in the TLS handshake. `None` without TLS, or if the
    /// client named none.
    pub alpn: Option<Alpn>,
}

impl Peer {
    /// Returns a peer without TLS.
    #[must_use]
    pub const fn new(addr: PeerAddr) -> Self {
        Self { addr, security: Security::Plain, alpn: None }
    }

    /// Returns the sender of the request whose handler runs on this thread now. Returns `None`
    /// where no handler runs: in a task that a handler has spawned, on another thread, and in the
    /// body of a response.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.get()
    }

    /// Returns the IP address and port of the other end, or `None` if the client uses a Unix
    /// socket.
    #[must_use]
    pub const fn socket_addr(&self) -> Option<SocketAddr> {
        match self.addr {
            PeerAddr::Tcp(addr) => Some(addr),
            _ => None,
        }
    }

    pub(crate) const fn over_tls(self, alpn: Option<Alpn>) -> Self {
        Self { security: Security::Tls, alpn, ..self }
    }
}

/// Sets the peer for which code on this thread runs, and whether this is a further request of its
/// connection, until the result is dropped. If a server runs within a handler of another one, what
/// was set before is restored afterwards, even after a panic.
#[inline]
pub(crate) fn enter(peer: Peer, is_further: bool) -> Entered {
    let before = CURRENT.replace(Some(peer));
    Entered { before, was_further: further_request::replace(is_further) }
}

/// See [`enter`].
#[must_use]
pub(crate) struct Entered {
    before: Option<Peer>,
    was_further: bool,
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(self.before);
        further_request::replace(self.was_further);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;
    use crate::further_request::is_further_request;

    #[test]
    fn the_peer_before_comes_back_after_a_panic_too() {
        let (first, second) = (Peer::new(PeerAddr::Unix), Peer::new(PeerAddr::Unix).over_tls(None));
        assert_eq!(Peer::current(), None);
        let entered = enter(first, true);
        let panicked = catch_unwind(|| {
            let _entered = enter(second, false);
            assert_eq!((Peer::current(), is_further_request()), (Some(second), false));
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert_eq!((Peer::current(), is_further_request()), (Some(first), true));
        drop(entered);
        assert_eq!((Peer::current(), is_further_request()), (None, false));
    }
}
