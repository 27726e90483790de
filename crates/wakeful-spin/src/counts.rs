//! What all threads have done.

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) static SPINS: AtomicU64 = AtomicU64::new(0);
pub(crate) static HITS: AtomicU64 = AtomicU64::new(0);
pub(crate) static MISSES: AtomicU64 = AtomicU64::new(0);
pub(crate) static GAVE_WAY: AtomicU64 = AtomicU64::new(0);

/// What the threads of this process have done so far, and in a forked child its parent's until
/// then. A spin that is counted nowhere but in `spins` was ended by the timeout, a signal or an
/// error, or goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Waits that have spun.
    pub spins: u64,
    /// Spins that an event ended.
    pub hits: u64,
    /// Spins that nothing ended: the thread slept.
    pub misses: u64,
    /// Spins that ended because somebody else needed the CPU.
    pub gave_way: u64,
}

/// What has been done so far.
#[must_use]
pub fn counts() -> Counts {
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Counts { spins: of(&SPINS), hits: of(&HITS), misses: of(&MISSES), gave_way: of(&GAVE_WAY) }
}

pub(crate) fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
