//! What protects a connection: nothing, or TLS.

/// What protects a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Security {
    /// No encryption: others on the network path can read the traffic.
    Plain,
    /// TLS.
    Tls,
}
