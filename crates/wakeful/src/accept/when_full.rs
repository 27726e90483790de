//! What a server at its limit of connections does with one more.

/// What a server at its limit of connections does with a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WhenFull {
    /// The connection waits in the kernel's backlog until an open one closes. While connections
    /// wait, the server asks open ones to close: first the one that has been idle for longest, and
    /// busy ones only if the idle ones are not enough. Choose this if open connections are worth
    /// keeping.
    #[default]
    Wait,
    /// The server accepts the connection, and at once asks another one to close: the one that has
    /// been idle for longest, or a busy one if none is idle. So silent connections cannot keep new
    /// ones out, however many there are. Until the other connection has closed, the server has more
    /// open connections than its limit.
    ///
    /// Choose this only for a small number of short connections, such as health checks. For each
    /// new connection, the server searches the open connections for one that can close.
    Replace,
}
