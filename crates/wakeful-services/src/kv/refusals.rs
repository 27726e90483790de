//! Counts connections that were closed because of a limit, for INFO.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Shared by all loops, and seldom written.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Beyond the largest number of connections.
    pub(super) connections: Count,
    /// A query buffer would have become larger than one may be.
    pub(super) query_buffers: Count,
    /// The buffers of all connections together would have become larger than they may be.
    pub(super) evicted: Count,
    /// A peer sent nothing, or read nothing, for too long.
    pub(super) timed_out: Count,
}

#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add_one(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
