//! Who opened a connection, as the maker of a service per connection sees it.

use wakeful::net::PeerAddr;

use crate::tls::security::Security;

/// Who opened a connection, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The other end.
    pub peer: PeerAddr,
    /// What protects the connection.
    pub security: Security,
}
