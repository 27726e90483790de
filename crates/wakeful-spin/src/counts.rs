//! Counters of what all threads have done.

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) static SPINS: AtomicU64 = AtomicU64::new(0);
pub(crate) static HITS: AtomicU64 = AtomicU64::new(0);
pub(crate) static MISSES: AtomicU64 = AtomicU64::new(0);
pub(crate) static GAVE_WAY: AtomicU64 = AtomicU64::new(0);

/// The counters of this process's threads. In a forked child they include the parent's counts until
/// the fork.
///
/// A spin that is counted only in `spins` is still running, or was ended by the timeout, a signal
/// or an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Waits in which the thread has spun.
    pub spins: u64,
    /// Spins that an event ended.
    pub hits: u64,
    /// Spins without an event, after which the thread slept.
    pub misses: u64,
    /// Spins that ended because another thread needed the CPU.
    pub gave_way: u64,
}

/// Returns the counters of this process.
#[must_use]
pub fn counts() -> Counts {
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Counts { spins: of(&SPINS), hits: of(&HITS), misses: of(&MISSES), gave_way: of(&GAVE_WAY) }
}

pub(crate) fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
