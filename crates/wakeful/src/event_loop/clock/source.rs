//! The source of the timers' clock, which a test may pause.
//!
//! A loop that has Tokio as its guest uses Tokio's clock, so that there are not two clocks.

use std::cell::Cell;
use std::time::{Duration, Instant};

#[cfg(feature = "tokio")]
use crate::guest::GuestClock;

/// Where the timers' clock comes from.
#[derive(Debug)]
pub(crate) enum Source {
    Own(Cell<State>),
    #[cfg(feature = "tokio")]
    Guest(GuestClock),
}

/// The states of a clock of the loop's own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum State {
    /// The machine's clock.
    Real,
    /// The clock was paused. It showed `from` when it resumed, at the real moment `since`.
    Resumed {
        from: Instant,
        since: Instant,
    },
    Paused(Instant),
}

impl Source {
    /// A clock of the loop's own. `paused`: the moment at which it stands still, if it does.
    pub(crate) fn own(paused: Option<Instant>) -> Self {
        let state = paused.map_or(State::Real, State::Paused);
        Self::Own(Cell::new(state))
    }
}

impl State {
    /// The clock's time at the real moment `now`.
    fn at(self, now: Instant) -> Instant {
        match self {
            Self::Real => now,
            Self::Resumed { from, since } => from + now.saturating_duration_since(since),
            Self::Paused(at) => at,
        }
    }
}

/// The reason why the clock refuses a call.
pub(crate) type Refusal = &'static str;

const NOT_PAUSED: Refusal = "the loop's clock is not paused: call `wakeful::time::pause` before, or build the loop with `start_paused`";

impl Source {
    /// The clock's time at the real moment `now`.
    pub(crate) fn at(&self, now: Instant) -> Instant {
        match self {
            Self::Own(state) => state.get().at(now),
            #[cfg(feature = "tokio")]
            Self::Guest(clock) => clock.now(),
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        match self {
            Self::Own(state) => matches!(state.get(), State::Paused(_)),
            #[cfg(feature = "tokio")]
            Self::Guest(clock) => clock.stands_still(),
        }
    }

    /// Pauses the clock. Panics where Tokio's `pause` does.
    #[track_caller]
    pub(crate) fn pause(&self) -> Result<(), Refusal> {
        match self {
            Self::Own(state) => match state.get() {
                State::Paused(_) => return Err("the loop's clock is paused already"),
                running => state.set(State::Paused(running.at(Instant::now()))),
            },
            #[cfg(feature = "tokio")]
            Self::Guest(clock) => clock.pause(),
        }
        Ok(())
    }

    /// Resumes the clock. Panics where Tokio's `resume` does.
    #[track_caller]
    pub(crate) fn resume(&self) -> Result<(), Refusal> {
        match self {
            Self::Own(state) => {
                let State::Paused(from) = state.get() else { return Err(NOT_PAUSED) };
                state.set(State::Resumed { from, since: Instant::now() });
            }
            #[cfg(feature = "tokio")]
            Self::Guest(clock) => clock.resume(),
        }
        Ok(())
    }

    /// Advances the clock. `false`: the clock is Tokio's, which advances it itself.
    pub(crate) fn advance(&self, duration: Duration) -> Result<bool, Refusal> {
        match self {
            Self::Own(state) => {
                let State::Paused(at) = state.get() else { return Err(NOT_PAUSED) };
                let later = at.checked_add(duration);
                let later = later.ok_or("the loop's clock cannot be advanced so far")?;
                state.set(State::Paused(later));
                Ok(true)
            }
            #[cfg(feature = "tokio")]
            Self::Guest(_) => Ok(false),
        }
    }

    /// Moves a paused clock of the loop's own to a later moment.
    pub(crate) fn jump_to(&self, due: Instant) {
        match self {
            Self::Own(state) => {
                if let State::Paused(at) = state.get() {
                    state.set(State::Paused(due.max(at)));
                }
            }
            #[cfg(feature = "tokio")]
            Self::Guest(_) => debug_assert!(false, "Tokio moves its clock itself"),
        }
    }
}
