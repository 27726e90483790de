//! Settings for the heads of messages.

use wakeful_http::client::HttpVersion;

use super::forwarded::ForwardedHeaders;
use super::via::Pseudonym;

/// The settings of how heads are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Which headers backends get about the client.
    pub forwarded: ForwardedHeaders,
    /// The HTTP version for backends.
    pub version: HttpVersion,
    /// To which protocols clients may upgrade.
    pub upgrades: Upgrades,
    /// The name by which this proxy recognises its own requests.
    pub pseudonym: Pseudonym,
}

/// To which protocols clients may upgrade.
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
