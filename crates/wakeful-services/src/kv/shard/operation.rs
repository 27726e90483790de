//! What is done with a key, and why not.

/// What is done with a key. Each has one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) enum Operation {
    /// Its value, or null.
    Get,
    /// OK, or null if the condition did not hold.
    Set(Condition),
    /// As `Set`, but the answer is what was there before, or null.
    Swap(Condition),
    /// So much more: the new number.
    Add(i64),
    /// How many keys were removed: one or none.
    Remove,
    /// How many there are: one or none.
    Count,
    /// Every key is removed, whatever this one is: OK.
    Clear,
}

/// When a key is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) enum Condition {
    Always,
    IfAbsent,
    IfPresent,
}

/// Why a key is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::kv) enum Refused {
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    OutOfMemory,
    #[error("OOM no memory left: a limit of the process, its cgroup or the machine is reached")]
    NoMemory,
    #[error("OOM answer not allowed when client buffers > 'maxmemory-clients'.")]
    NoRoomToAnswer,
    #[error("OOM command not allowed when client buffers > 'maxmemory-clients'.")]
    NoRoomToSend,
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    #[error("ERR increment or decrement would overflow")]
    Overflow,
}
