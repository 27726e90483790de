//! The clock by which the kernel measures timeouts.
#![allow(unsafe_code)]

use libc::timespec;

/// Nanoseconds since some fixed time.
#[inline]
pub(crate) fn now() -> u64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes a `timespec`. It fails only for a clock that the kernel does not have.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // Neither number is negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
