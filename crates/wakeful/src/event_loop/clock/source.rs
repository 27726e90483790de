//! The timers' clock where a test may pause it.
//!
//! A loop that has Tokio as its guest goes by Tokio's clock, so that there are not two of them.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::Clock;
#[cfg(feature = "tokio")]
use crate::guest::GuestClock;
use crate::timers::TimerTime;

/// Where the timers' clock comes from.
#[derive(Debug)]
pub(in super::super) enum Source {
    Own(Cell<State>),
    #[cfg(feature = "tokio")]
    Guest(GuestClock),
}

/// The states of a clock of the loop's own.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum State {
    /// It is the machine's.
    Real,
    /// It was paused, and said `from` when it went on, at the real moment `since`.
    Resumed {
        from: Instant,
        since: Instant,
    },
    Paused(Instant),
}

impl Source {
    /// `paused`: since when it stands still, if it does.
    pub(in super::super) fn own(paused: Option<Instant>) -> Self {
        let state = paused.map_or(State::Real, State::Paused);
        Self::Own(Cell::new(state))
    }
}

impl State {
    /// What it says at the real moment `now`.
    fn at(self, now: Instant) -> Instant {
        match self {
            Self::Real => now,
            Self::Resumed { from, since } => from + now.saturating_duration_since(since),
            Self::Paused(at) => at,
        }
    }
}

/// Why the clock cannot be steered so.
pub(in super::super) type Refusal = &'static str;

const NOT_PAUSED: Refusal = "the loop's clock is not paused: call `wakeful::time::pause` before, or build the loop with `start_paused`";

impl Clock {
    pub(super) fn timers_at(&self, now: Instant) -> Instant {
        match &self.source {
            Source::Own(state) => state.get().at(now),
            #[cfg(feature = "tokio")]
            Source::Guest(clock) => clock.now(),
        }
    }

    pub(in super::super) fn is_paused(&self) -> bool {
        match &self.source {
            Source::Own(state) => matches!(state.get(), State::Paused(_)),
            #[cfg(feature = "tokio")]
            Source::Guest(clock) => clock.stands_still(),
        }
    }

    /// Panics where Tokio's does.
    #[track_caller]
    pub(in super::super) fn pause(&self) -> Result<(), Refusal> {
        match &self.source {
            Source::Own(state) => match state.get() {
                State::Paused(_) => return Err("the loop's clock is paused already"),
                running => state.set(State::Paused(running.at(Instant::now()))),
            },
            #[cfg(feature = "tokio")]
            Source::Guest(clock) => clock.pause(),
        }
        Ok(())
    }

    /// As [`pause`](Self::pause).
    #[track_caller]
    pub(in super::super) fn resume(&self) -> Result<(), Refusal> {
        match &self.source {
            Source::Own(state) => {
                let State::Paused(from) = state.get() else { return Err(NOT_PAUSED) };
                state.set(State::Resumed { from, since: Instant::now() });
            }
            #[cfg(feature = "tokio")]
            Source::Guest(clock) => clock.resume(),
        }
        Ok(())
    }

    /// `false`: the clock is Tokio's, which moves it.
    pub(in super::super) fn advance(&self, duration: Duration) -> Result<bool, Refusal> {
        match &self.source {
            Source::Own(state) => {
                let State::Paused(at) = state.get() else { return Err(NOT_PAUSED) };
                let later = at.checked_add(duration);
                let later = later.ok_or("the loop's clock cannot be advanced so far")?;
                state.set(State::Paused(later));
                Ok(true)
            }
            #[cfg(feature = "tokio")]
            Source::Guest(_) => Ok(false),
        }
    }

    /// Moves a paused clock of the loop's own to a timer's moment.
    pub(in super::super) fn jump_to(&self, due: TimerTime) {
        match &self.source {
            Source::Own(state) => state.set(State::Paused(self.instant(due).max(self.now()))),
            #[cfg(feature = "tokio")]
            Source::Guest(_) => debug_assert!(false, "Tokio moves its clock itself"),
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
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
        clock.advance(HOUR).unwrap();
        assert_eq!(clock.now(), start + HOUR);
        clock.resume().unwrap();
        let (resumed, real) = (clock.now(), Instant::now());
        assert!(resumed >= start + HOUR);
        let (later, passed) = (clock.now(), real.elapsed());
        assert!(later >= resumed && later - resumed <= passed + (Instant::now() - real));
        clock.pause().unwrap();
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
        clock.pause().unwrap();
        clock.advance(HOUR).unwrap();
        let reading = clock.read();
        let ahead = reading.timers.nanos_since(TimerTime::from_nanos(reading.real));
        assert!(Duration::from_nanos(ahead) > HOUR / 2);
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let clock = Clock::new(Instant::now(), Source::own(None));
        assert!(clock.resume().is_err() && clock.advance(HOUR).is_err());
        assert!(!clock.is_paused());
        clock.pause().unwrap();
        let paused = clock.now();
        assert!(clock.pause().is_err() && clock.advance(Duration::MAX).is_err());
        assert_eq!(clock.now(), paused);
    }
}
