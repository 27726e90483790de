//! The two clocks of a loop.
//!
//! What users wait for (sleeps, timeouts, intervals, limits of streams) goes by the timers' clock,
//! whose moments are [`Instant`]s to users and [`TimerTime`]s within the loop. What measures the
//! machine, or decides how the loop sleeps (idle policy, turn budget, pulse, metrics, the wait of a
//! `turn`), goes by the machine's own clock, in plain nanoseconds. The two are one, and cost one
//! reading, unless the feature `test-util` is there and a test has paused the timers' clock
//! ([`source`]).

#[cfg(feature = "test-util")]
mod source;

use std::time::{Duration, Instant};

#[cfg(feature = "test-util")]
pub(super) use self::source::{Refusal, Source};
use crate::timers::TimerTime;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Clock {
    /// Zero on both clocks.
    epoch: Instant,
    #[cfg(feature = "test-util")]
    source: Source,
}

/// One look at both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    /// The machine's, in nanoseconds since the loop was built.
    pub(super) real: u64,
    pub(super) timers: TimerTime,
}

impl Clock {
    /// `epoch` is not later than what `source` says.
    pub(super) fn new(epoch: Instant, #[cfg(feature = "test-util")] source: Source) -> Self {
        Self {
            epoch,
            #[cfg(feature = "test-util")]
            source,
        }
    }

    /// What the timers' clock says.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.timers_at(Instant::now())
    }

    #[inline]
    pub(super) fn read(&self) -> Reading {
        let now = Instant::now();
        Reading { real: self.real(now), timers: self.timer_time(self.timers_at(now)) }
    }

    /// A moment of the timers' clock: at most 584 years from the loop's beginning.
    #[inline]
    pub(crate) fn timer_time(&self, at: Instant) -> TimerTime {
        TimerTime::from_nanos(self.since_epoch(at))
    }

    /// The other way round.
    pub(super) fn instant(&self, at: TimerTime) -> Instant {
        self.epoch + at.since_zero()
    }

    /// A moment of the machine's clock.
    #[inline]
    pub(super) fn real(&self, at: Instant) -> u64 {
        self.since_epoch(at)
    }

    /// How long the loop may sleep until a timer of this moment is due. `None`: for as long as it
    /// likes, because the timers' clock stands still.
    #[inline]
    pub(super) fn until(&self, due: TimerTime, now: TimerTime) -> Option<Duration> {
        let left = due.nanos_since(now);
        #[cfg(feature = "test-util")]
        if left > 0 && self.is_paused() {
            return None;
        }
        Some(Duration::from_nanos(left))
    }

    /// Does the timers' clock go on while the loop waits?
    #[inline]
    pub(super) fn runs(&self) -> bool {
        #[cfg(feature = "test-util")]
        return !self.is_paused();
        #[cfg(not(feature = "test-util"))]
        true
    }

    #[inline]
    fn since_epoch(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.epoch);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    #[cfg(not(feature = "test-util"))]
    #[inline]
    #[allow(clippy::unused_self, reason = "with the feature `test-util` it depends on the loop")]
    fn timers_at(&self, real: Instant) -> Instant {
        real
    }
}
