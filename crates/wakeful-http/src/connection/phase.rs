//! What a connection waits for, since when, and what its driver does if the wait takes too long.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::counts::Refusal;

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its first request.
    First,
    /// The rest of a request's header.
    Header,
    /// Another request.
    Idle,
    /// What it does: a request is in flight, or a response is not written.
    Busy,
}

/// What a connection's driver should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Poll hyper again: something was decided.
    PollAgain,
    /// Nothing is in flight: close, as the protocol has it.
    Finish,
    /// End it now. It has been counted.
    End(Refusal),
}

/// Since when a connection is in its phase, and when it was last looked at while it was busy.
#[derive(Debug)]
pub(super) struct PhaseClock {
    /// The phase, how many requests had begun by then, and whether the connection was closing.
    phase: Cell<(Phase, u64, bool)>,
    since: Cell<Instant>,
    ticked: Cell<Instant>,
}

impl PhaseClock {
    /// For a connection that has come to this loop at `arrived`, with so many requests served.
    pub(super) fn new(arrived: Instant, served: u64) -> Self {
        Self {
            phase: Cell::new((Phase::First, served, false)),
            since: Cell::new(arrived),
            ticked: Cell::new(arrived),
        }
    }

    /// Notes since when the connection is in `phase`. From a request's end to the next one's
    /// beginning it has been in another phase, though nobody has looked.
    pub(super) fn enter(&self, phase: Phase, served: u64, is_closing: bool, now: Instant) {
        let (before, ..) = self.phase.get();
        let here = (phase, served, is_closing);
        let same =
            matches!((before, phase), (Phase::First, Phase::Header) | (Phase::Busy, Phase::Busy));
        if self.phase.replace(here) == here || same {
            return;
        }
        self.since.set(now);
        if before != Phase::Busy {
            self.ticked.set(now);
        }
    }

    /// Returns the phase, as of the last poll.
    pub(super) fn phase(&self) -> Phase {
        self.phase.get().0
    }

    /// Returns the instant at which the phase began.
    pub(super) fn since(&self) -> Instant {
        self.since.get()
    }

    /// Returns the instant of the last tick.
    pub(super) fn ticked(&self) -> Instant {
        self.ticked.get()
    }

    /// Notes a tick, and returns the time since the one before.
    pub(super) fn tick(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.ticked.replace(now))
    }
}
