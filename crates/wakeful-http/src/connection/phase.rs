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
    /// A request is in flight, or a response is not completely written.
    Busy,
}

/// What a connection's driver should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Poll hyper again, because something was decided.
    PollAgain,
    /// Nothing is in flight: close in the protocol's way.
    Finish,
    /// End the connection now. The refusal has been counted.
    End(Refusal),
}

/// Since when a connection is in its phase, and when the last tick was while something was in
/// flight.
#[derive(Debug)]
pub(super) struct PhaseClock {
    /// The phase, how many requests had begun by then, and whether the connection was closing.
    phase: Cell<(Phase, u64, bool)>,
    since: Cell<Instant>,
    /// Is anything in flight?
    ticks: Cell<bool>,
    ticked: Cell<Instant>,
}

impl PhaseClock {
    /// The clock of a connection that has come to this loop at `arrived`, after `served` requests.
    pub(super) fn new(arrived: Instant, served: u64) -> Self {
        Self {
            phase: Cell::new((Phase::First, served, false)),
            since: Cell::new(arrived),
            ticks: Cell::new(false),
            ticked: Cell::new(arrived),
        }
    }

    /// Sets when the phase began.
    pub(super) fn begins_at(&self, begins: Instant) {
        self.since.set(begins);
    }

    /// Notes whether anything is in flight, and so whether the connection ticks.
    pub(super) fn ticks(&self, ticks: bool, now: Instant) {
        if ticks && !self.ticks.get() {
            self.ticked.set(now);
        }
        self.ticks.set(ticks);
    }

    /// Notes that the connection is in `phase`. If requests began since the last call, the
    /// connection has been in another phase in between, even though no poll noticed.
    pub(super) fn enter(&self, phase: Phase, served: u64, is_closing: bool, now: Instant) {
        let (before, ..) = self.phase.get();
        let here = (phase, served, is_closing);
        let same =
            matches!((before, phase), (Phase::First, Phase::Header) | (Phase::Busy, Phase::Busy));
        if self.phase.replace(here) == here || same {
            return;
        }
        self.since.set(now);
    }

    /// Returns the phase at the last poll.
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

    /// Notes a tick, and returns the time since the previous one.
    pub(super) fn tick(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.ticked.replace(now))
    }
}
