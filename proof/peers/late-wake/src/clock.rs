//! `CLOCK_MONOTONIC`, in nanoseconds since the first reading: a word that threads can pass to each
//! other.

use std::sync::OnceLock;
use std::time::Instant;

static START: OnceLock<Instant> = OnceLock::new();

/// Returns the time now. It is never 0, which stands for "not yet".
#[must_use]
pub fn now() -> u64 {
    let start = START.get_or_init(Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Spins for this number of nanoseconds.
pub fn spin(nanoseconds: u64) {
    let end = now() + nanoseconds;
    while now() < end {
        std::hint::spin_loop();
    }
}
