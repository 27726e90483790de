//! `CLOCK_MONOTONIC`, in nanoseconds since the first reading: a word that threads can hand one
//! another.

use std::sync::OnceLock;
use std::time::Instant;

static START: OnceLock<Instant> = OnceLock::new();

/// Now; never 0, which stands for "not yet".
#[must_use]
pub fn now() -> u64 {
    let start = START.get_or_init(Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// Spins until so many nanoseconds have passed.
pub fn spin(nanoseconds: u64) {
    let end = now() + nanoseconds;
    while now() < end {
        std::hint::spin_loop();
    }
}
