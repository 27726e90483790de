//! Who opened a connection, and what protects it.

use wakeful::net::PeerAddr;

/// Who opened a connection, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The other end.
    pub peer: PeerAddr,
    /// What protects the connection.
    pub security: Security,
}

/// What protects a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Security {
    /// Nothing: what goes over it can be read on the way.
    Plain,
    /// TLS.
    Tls,
}
