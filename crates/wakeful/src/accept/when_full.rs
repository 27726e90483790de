//! What a server at its limit of connections does with one more.

/// What a server at its limit of connections does with one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WhenFull {
    /// The connection waits in the kernel's backlog until a place is free. After a while the server
    /// asks other connections to close. Choose this if open connections are worth keeping.
    #[default]
    Wait,
    /// The connection is accepted, and another one is asked to close at once. So silent connections
    /// cannot keep others out, however many they are. Choose this for a small number of short
    /// connections, such as health checks: each new connection costs a look at all connections of
    /// its loop. Until the asked connection has closed, the server has one more connection open
    /// than its limit.
    Replace,
}
