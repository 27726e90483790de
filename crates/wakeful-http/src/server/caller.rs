//! Who opened a connection, as the maker of a service per connection sees it.

use wakeful::net::PeerAddr;

use crate::tls::security::Security;

/// The client of a connection, and how the connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The address of the other end.
    pub peer: PeerAddr,
    /// What protects the connection.
    pub security: Security,
}
