//! What protects a connection: nothing, or TLS.

/// What protects a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Security {
    /// Nothing: what goes over it can be read on the way.
    Plain,
    /// TLS.
    Tls,
}
