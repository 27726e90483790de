//! What a server at its limit of connections does with one more.

/// What a server at its limit of connections does with a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WhenFull {
    /// The connection waits in the kernel's backlog until an open one closes. After a while the
    /// server asks other connections to close. Choose this if open connections are worth keeping.
    #[default]
    Wait,
    /// The server accepts the connection, and asks another one to close at once. So silent
    /// connections cannot keep others out, however many there are. Choose this for a small number
    /// of short connections, such as health checks, because for each new connection the server
    /// checks all connections of the loop. Until the other connection has closed, the server has
    /// one more connection open than its limit.
    Replace,
}
