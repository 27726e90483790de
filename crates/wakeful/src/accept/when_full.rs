//! What a server at its limit of connections does with one more.

/// What a server at its limit of connections does with one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WhenFull {
    /// It waits in the kernel's backlog until a place is free, and others are asked to leave when
    /// it has waited for a while. Right where connections are worth keeping.
    #[default]
    Wait,
    /// It is let in, and another one is asked to leave for it at once. So connections of which
    /// nothing comes keep nobody out, however many of them there are. Right for a few short
    /// connections, as of health checks: each new one costs a look at all of its loop. The server
    /// has one more open than its limit says for as long as the one that was asked takes to leave.
    Replace,
}
