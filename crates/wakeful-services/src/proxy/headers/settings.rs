//! What there is to choose.

use wakeful_http::client::HttpVersion;

use super::forwarded::ForwardedHeaders;
use super::via::Pseudonym;

/// What there is to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// What backends are told about the client.
    pub forwarded: ForwardedHeaders,
    /// How backends are spoken to.
    pub version: HttpVersion,
    /// Which protocols clients may change to.
    pub upgrades: Upgrades,
    /// By what this proxy knows its own requests again.
    pub pseudonym: Pseudonym,
}

/// Which protocols clients may change to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Upgrades {
    /// None: `Upgrade` is removed, and the request is forwarded like any other.
    Off,
    /// WebSockets.
    #[default]
    WebSocket,
    /// Any protocol, except versions of HTTP and TLS, and names that begin like these.
    Any,
}
