//! The cheapest clock of this machine, for metrics: its unit is the tick, whose length is found out once for the process.
//!
//! On x86-64 a tick is one of the time stamp counter's, if that runs at one rate on all CPUs and may be read: three instructions, and no system call. Anywhere else a
//! tick is a nanosecond of `CLOCK_MONOTONIC`, at some 35 instructions. Two CPUs may differ by some ticks, so a later moment may have the smaller number.
//!
//! The rate is measured by spinning for 0.1 ms, when the process builds its first loop, and stays as it is: what was converted never shrinks. It is
//! off by less than 0.1 %. Async-signal-safe after that.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// For how long the two clocks are compared, in nanoseconds.
const COMPARED: u64 = 100_000;

static EPOCH: OnceLock<Instant> = OnceLock::new();
static IS_COUNTER: AtomicBool = AtomicBool::new(false);
/// Nanoseconds in 2^32 ticks.
static SCALE: AtomicU64 = AtomicU64::new(1 << 32);

/// To be called before anything else here, by everybody.
pub(crate) fn find_out() {
    EPOCH.get_or_init(|| {
        let epoch = Instant::now();
        if counter::is_steady() {
            SCALE.store(counter::measured(epoch), Ordering::Relaxed);
            IS_COUNTER.store(true, Ordering::Relaxed);
        }
        epoch
    });
}

/// This moment, in ticks since some other moment.
#[inline]
pub(crate) fn now() -> u64 {
    // The flag is set before any loop is there.
    if IS_COUNTER.load(Ordering::Relaxed) { counter::read() } else { since_epoch() }
}

#[cold]
fn since_epoch() -> u64 {
    EPOCH.get().map_or(0, |epoch| nanoseconds_since(*epoch))
}

fn nanoseconds_since(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Up to this many ticks [`short`] is right.
pub(crate) const SHORT: u64 = 1 << 31;

/// How many nanoseconds so few ticks are: two instructions.
#[inline]
pub(crate) fn short(ticks: u64) -> u64 {
    ticks.wrapping_mul(SCALE.load(Ordering::Relaxed)) >> 32
}

/// How many nanoseconds so many ticks are.
pub(crate) fn nanoseconds(ticks: u64) -> u64 {
    let scaled = (u128::from(ticks) * u128::from(SCALE.load(Ordering::Relaxed))) >> 32;
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// How many ticks a time has, rounded down.
pub(crate) fn in_ticks(time: Duration) -> u64 {
    let scaled = (time.as_nanos() << 32) / u128::from(SCALE.load(Ordering::Relaxed));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The time stamp counter. Miri has none.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod counter {
    use std::arch::x86_64::{__cpuid, _rdtsc};
    use std::time::Instant;

    use super::{COMPARED, nanoseconds_since};

    /// Does it run at one rate whatever the CPU's frequency and sleep, and may this process read it?
    #[allow(unused_unsafe, reason = "`__cpuid` is safe since Rust 1.93")]
    pub(super) fn is_steady() -> bool {
        // SAFETY: every x86-64 has the instruction.
        let (highest, power) = unsafe { (__cpuid(0x8000_0000).eax, __cpuid(0x8000_0007).edx) };
        let invariant = highest >= 0x8000_0007 && power & (1 << 8) != 0;
        let mut mode = libc::PR_TSC_ENABLE;
        // SAFETY: the kernel writes an int, or says that it did not. (A process whose reads are trapped may still ask.)
        unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) };
        invariant && mode == libc::PR_TSC_ENABLE
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 has the instruction, and `is_steady` found that it is not trapped.
        unsafe { _rdtsc() }
    }

    /// Nanoseconds in 2^32 ticks.
    pub(super) fn measured(epoch: Instant) -> u64 {
        let (began, first) = pair(epoch);
        while nanoseconds_since(epoch) < began + COMPARED {}
        let (ended, last) = pair(epoch);
        let scale = (u128::from(ended - began) << 32) / u128::from(last.wrapping_sub(first).max(1));
        u64::try_from(scale).unwrap_or(u64::MAX)
    }

    /// One moment on both clocks: of several tries the one with the least time between two reads of the counter.
    fn pair(epoch: Instant) -> (u64, u64) {
        let tries = (0..8).map(|_| {
            let before = read();
            let nanoseconds = nanoseconds_since(epoch);
            let between = read().wrapping_sub(before);
            (between, nanoseconds, before.wrapping_add(between / 2))
        });
        let best = tries.min_by_key(|(between, ..)| *between);
        best.map_or((0, 0), |(_, nanoseconds, ticks)| (nanoseconds, ticks))
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod counter {
    use std::time::Instant;

    pub(super) fn is_steady() -> bool {
        false
    }

    pub(super) fn read() -> u64 {
        0
    }

    pub(super) fn measured(_: Instant) -> u64 {
        1 << 32
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    /// Within 1 % of what the other clock says of a time inside, and of one outside.
    #[test]
    fn a_tick_is_as_long_as_was_found_out() {
        find_out();
        let outer = Instant::now();
        let began = now();
        let inner = Instant::now();
        std::thread::sleep(Duration::from_millis(5));
        let inside = inner.elapsed();
        let took = nanoseconds(now().wrapping_sub(began));
        let outside = outer.elapsed();
        let took = Duration::from_nanos(took);
        assert!(took > inside * 99 / 100 && took < outside * 101 / 100, "{took:?} {inside:?}");
    }

    #[test]
    fn short_times_are_converted_as_others_are_and_back() {
        find_out();
        for ticks in [0, 1, 2, 1_000, 123_456_789, SHORT - 1, SHORT] {
            assert_eq!(short(ticks), nanoseconds(ticks));
            let back = in_ticks(Duration::from_nanos(nanoseconds(ticks)));
            assert!(back <= ticks && ticks - back < 1_000, "{ticks} {back}");
        }
        assert!(nanoseconds(u64::MAX) > u64::MAX / 1_000, "no overflow");
        assert_eq!(in_ticks(Duration::MAX), u64::MAX);
    }
}
