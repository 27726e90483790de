//! The operations on a key, and the reasons to refuse them.

/// An operation on a key. Each has one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) enum Operation {
    /// Answers the value, or null.
    Get,
    /// Answers OK, or null if the condition was not met.
    Set(Condition),
    /// Like `Set`, but answers the previous value, or null.
    Swap(Condition),
    /// Adds to the number, and answers the new number.
    Add(i64),
    /// Answers how many keys were removed: 1 or 0.
    Remove,
    /// Answers how many keys exist: 1 or 0.
    Count,
    /// Removes all keys, whatever this one is, and answers OK.
    Clear,
}

/// When a key is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) enum Condition {
    Always,
    IfAbsent,
    IfPresent,
}

/// Why a key was not changed.
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
