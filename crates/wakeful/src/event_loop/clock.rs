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

/// The clocks of one loop. See the [module](self).
#[derive(Debug)]
pub(crate) struct Clock {
    /// The moment at which both clocks are zero.
    epoch: Instant,
    #[cfg(feature = "test-util")]
    source: Source,
}

/// One reading of both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    /// The machine's clock, in nanoseconds since the loop was built.
    pub(super) real: u64,
    pub(super) timers: TimerTime,
}

impl Clock {
    /// `epoch` must not be later than the time of `source`.
    pub(super) fn new(epoch: Instant, #[cfg(feature = "test-util")] source: Source) -> Self {
        Self {
            epoch,
            #[cfg(feature = "test-util")]
            source,
        }
    }

    /// The time of the timers' clock.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.timers_at(Instant::now())
    }

    #[inline]
    pub(super) fn read(&self) -> Reading {
        let now = Instant::now();
        let real = self.real(now);
        // Without `test-util` both clocks are the same, which the compiler does not see by itself.
        #[cfg(not(feature = "test-util"))]
        let timers = TimerTime::from_nanos(real);
        #[cfg(feature = "test-util")]
        let timers = self.timer_time(self.timers_at(now));
        Reading { real, timers }
    }

    /// A moment of the timers' clock: at most 584 years from the loop's beginning.
    #[inline]
    pub(crate) fn timer_time(&self, at: Instant) -> TimerTime {
        TimerTime::from_nanos(self.since_epoch(at))
    }

    /// The `Instant` of a moment of the timers' clock.
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

    /// Does the timers' clock advance while the loop waits?
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

    #[inline]
    fn timers_at(&self, real: Instant) -> Instant {
        #[cfg(feature = "test-util")]
        return self.source.at(real);
        #[cfg(not(feature = "test-util"))]
        real
    }
}

#[cfg(feature = "test-util")]
impl Clock {
    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    pub(super) fn is_paused(&self) -> bool {
        self.source.is_paused()
    }

    /// Advances a paused clock of the loop's own to a timer's moment, unless it is later already.
    pub(super) fn jump_to(&self, due: TimerTime) {
        self.source.jump_to(self.instant(due));
    }
}

#[cfg(all(test, feature = "test-util", not(wakeful_loom)))]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at_pause(now: Instant) -> Clock {
        Clock::new(now, Source::own(Some(now)))
    }

    #[test]
    fn a_moment_behind_the_beginning_is_not_the_beginning() {
        let clock = at_pause(Instant::now());
        let next = clock.timer_time(clock.now() + Duration::from_nanos(1));
        assert!(next > clock.read().timers);
        clock.jump_to(next);
        assert_eq!(clock.read().timers, next);
    }

    #[test]
    fn a_resumed_clock_goes_on_from_where_it_stood() {
        let clock = at_pause(Instant::now());
        let start = clock.now();
        clock.source().advance(HOUR).unwrap();
        assert_eq!(clock.now(), start + HOUR);
        clock.source().resume().unwrap();
        let (resumed, real) = (clock.now(), Instant::now());
        assert!(resumed >= start + HOUR);
        let (later, passed) = (clock.now(), real.elapsed());
        assert!(later >= resumed && later - resumed <= passed + (Instant::now() - real));
        clock.source().pause().unwrap();
        let paused = clock.now();
        assert!(paused >= later);
        assert_eq!(clock.now(), paused);
    }

    #[test]
    fn both_clocks_are_one_until_the_first_pause() {
        let clock = Clock::new(Instant::now(), Source::own(None));
        let (before, reading) = (Instant::now(), clock.read());
        assert_eq!(reading.timers, TimerTime::from_nanos(reading.real));
        assert!(before <= clock.now() && clock.now() <= Instant::now());
        clock.source().pause().unwrap();
        clock.source().advance(HOUR).unwrap();
        let reading = clock.read();
        let ahead = reading.timers.nanos_since(TimerTime::from_nanos(reading.real));
        assert!(Duration::from_nanos(ahead) > HOUR / 2);
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let clock = Clock::new(Instant::now(), Source::own(None));
        assert!(clock.source().resume().is_err() && clock.source().advance(HOUR).is_err());
        assert!(!clock.is_paused());
        clock.source().pause().unwrap();
        let paused = clock.now();
        assert!(clock.source().pause().is_err() && clock.source().advance(Duration::MAX).is_err());
        assert_eq!(clock.now(), paused);
    }
}
