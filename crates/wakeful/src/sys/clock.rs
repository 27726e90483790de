//! The cheapest clock of this machine, for metrics. Its unit is the tick, whose length is measured
//! once for the process.
//!
//! On x86-64 a tick is a tick of the time stamp counter, if the counter runs at one rate on all
//! CPUs and may be read. A reading takes three instructions and no system call. Anywhere else a
//! tick is a nanosecond of `CLOCK_MONOTONIC`, and a reading takes some 35 instructions. The
//! counters of two CPUs may differ by some ticks, so a later moment may have a smaller number. The
//! zero of the clock is the same for all processes of the machine.
//!
//! The rate is measured by spinning for 0.1 ms when the process builds its first loop, and never
//! changes, so that converted times never shrink. It is off by less than 0.1 %.

use std::time::Duration;

use once_cell::race::OnceBox;
use rustix::time::{ClockId, clock_gettime};

/// The greatest number of ticks for which [`Clock::short`] is right.
pub(crate) const SHORT: u64 = i32::MAX as u64;

/// The clock of the process. A copy is the same clock. See the [module](self).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    is_counter: bool,
    /// The number of nanoseconds in 2^32 ticks.
    scale: u64,
}

impl Clock {
    /// Returns the clock. The first call measures it.
    #[inline]
    pub(crate) fn get() -> Self {
        // There is no lock, because a forked child would inherit it from the thread that measures.
        static CLOCK: OnceBox<Clock> = OnceBox::new();
        *CLOCK.get_or_init(|| {
            let is_counter = counter::is_steady();
            let scale = if is_counter { counter::measured() } else { 1 << 32 };
            Box::new(Self { is_counter, scale })
        })
    }

    /// The present moment, in ticks since some fixed moment.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        if self.is_counter { counter::read() } else { monotonic() }
    }

    /// Converts up to [`SHORT`] ticks to nanoseconds, by a multiplication and a shift.
    #[inline]
    pub(crate) fn short(&self, ticks: u64) -> u64 {
        ticks.wrapping_mul(self.scale) >> 32
    }

    /// Converts ticks to nanoseconds.
    pub(crate) fn nanoseconds(&self, ticks: u64) -> u64 {
        let scaled = (u128::from(ticks) * u128::from(self.scale)) >> 32;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Converts ticks to a duration.
    pub(crate) fn duration(&self, ticks: u64) -> Duration {
        Duration::from_nanos(self.nanoseconds(ticks))
    }

    /// Converts a time to ticks, rounded down.
    pub(crate) fn ticks(&self, time: Duration) -> u64 {
        let scaled = (time.as_nanos() << 32) / u128::from(self.scale);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

/// The present moment in nanoseconds of `CLOCK_MONOTONIC`, which is one clock for all processes.
#[cold]
pub(crate) fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither number is negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The ticks from one moment to a later one. The counters of two CPUs may differ by some ticks, so
/// if the end seems to be before the beginning, the result is 0.
#[inline]
pub(crate) fn between(from: u64, to: u64) -> u64 {
    let ticks = to.wrapping_sub(from);
    if ticks > u64::MAX / 2 { 0 } else { ticks }
}

/// The time stamp counter. Miri has none.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod counter {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    use super::monotonic;

    /// How long the two clocks are compared, in nanoseconds.
    const COMPARED: u64 = 100_000;

    /// Does the counter run at one rate, whatever the CPU's frequency and sleep states, and may
    /// this process read it?
    #[allow(unused_unsafe, reason = "`__cpuid` is safe since Rust 1.93")]
    pub(super) fn is_steady() -> bool {
        // SAFETY: every x86-64 has the instruction.
        let (highest, power) = unsafe { (__cpuid(0x8000_0000).eax, __cpuid(0x8000_0007).edx) };
        let invariant = highest >= 0x8000_0007 && power & (1 << 8) != 0;
        let mut mode = libc::PR_TSC_ENABLE;
        // SAFETY: the kernel writes an int, or says that it did not. (A process whose reads are
        // trapped may still ask.)
        unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) };
        invariant && mode == libc::PR_TSC_ENABLE
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 has the instruction, and `is_steady` found that it is not trapped.
        unsafe { _rdtsc() }
    }

    /// Nanoseconds in 2^32 ticks.
    pub(super) fn measured() -> u64 {
        let (began, first) = pair();
        while monotonic() < began + COMPARED {}
        let (ended, last) = pair();
        let scale = (u128::from(ended - began) << 32) / u128::from(last.wrapping_sub(first).max(1));
        u64::try_from(scale).unwrap_or(u64::MAX)
    }

    /// The same moment on both clocks: of several tries, the one with the least time between its
    /// two readings of the counter.
    fn pair() -> (u64, u64) {
        let tries = (0..8).map(|_| {
            let before = read();
            let nanoseconds = monotonic();
            let between = read().wrapping_sub(before);
            (between, nanoseconds, before.wrapping_add(between / 2))
        });
        let best = tries.min_by_key(|(between, ..)| *between);
        best.map_or((0, 0), |(_, nanoseconds, ticks)| (nanoseconds, ticks))
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod counter {
    pub(super) fn is_steady() -> bool {
        false
    }

    pub(super) fn read() -> u64 {
        0
    }

    pub(super) fn measured() -> u64 {
        1 << 32
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::time::Instant;

    use super::*;

    /// The conversion must agree with the other clock within 1 %, for a time within the measurement
    /// and for a longer one.
    #[test]
    fn a_tick_is_as_long_as_was_found_out() {
        let clock = Clock::get();
        let outer = Instant::now();
        let began = clock.now();
        let inner = Instant::now();
        std::thread::sleep(Duration::from_millis(5));
        let inside = inner.elapsed();
        let took = clock.nanoseconds(between(began, clock.now()));
        let outside = outer.elapsed();
        let took = Duration::from_nanos(took);
        assert!(took > inside * 99 / 100 && took < outside * 101 / 100, "{took:?} {inside:?}");
    }

    #[test]
    fn short_times_are_converted_as_others_are_and_back() {
        let clock = Clock::get();
        for ticks in [0, 1, 2, 1_000, 123_456_789, SHORT - 1, SHORT] {
            assert_eq!(clock.short(ticks), clock.nanoseconds(ticks));
            let back = clock.ticks(clock.duration(ticks));
            assert!(back <= ticks && ticks - back < 1_000, "{ticks} {back}");
        }
        assert!(clock.nanoseconds(u64::MAX) > u64::MAX / 1_000, "no overflow");
        assert_eq!(clock.ticks(Duration::MAX), u64::MAX);
        assert_eq!((between(5, 7), between(7, 5)), (2, 0));
    }
}
