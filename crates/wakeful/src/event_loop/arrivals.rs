//! Until when the loop has seen what arrived: the rule for deadlines after a pause.
//!
//! A process may be stopped at any instruction (SIGSTOP, a suspended machine, a neighbour on its
//! CPU). When it runs again the clock has passed deadlines, and what arrived in time may still be
//! in the kernel. So a timer expires only once the kernel was asked *after* its deadline:
//! [`asked_until`](Arrivals::asked_until). More may be ready than one wait brings. A timer does not
//! wait for the rest, because a flood would delay it. A [`Deadline`](crate::time::Deadline) does
//! wait: [`seen_until`](Arrivals::seen_until). [`Arrivals`] reads no clock: it uses readings that
//! the loop makes anyway. A reading from before a wait is early, never late, so a timer may take
//! one more turn.

use std::cell::Cell;
use std::time::Duration;

use crate::driver::epoll::Timeout;
use crate::timers::TimerTime;

/// A kernel without `epoll_pwait2` may end a wait early that is longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// What a wait brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Brought {
    /// Everything that was ready.
    All,
    /// Nothing within the whole timeout.
    Nothing,
    /// A signal interrupted the wait.
    Interrupted,
    /// A full batch: more may be ready.
    Batch {
        events: usize,
        /// How many events there can be at a time.
        most: usize,
    },
}

/// What the loop knows of arrivals. Times are on the timers' clock.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// The last reading of the clock.
    reading: Cell<TimerTime>,
    asked_until: Cell<TimerTime>,
    seen_until: Cell<TimerTime>,
    /// Set while all waits since a certain moment have brought full batches.
    rest: Cell<Option<Rest>>,
}

/// What was ready at the time `since`, and is not fetched yet.
#[derive(Debug, Clone, Copy)]
struct Rest {
    since: TimerTime,
    /// The maximum number of these events. The kernel's list is in order, so later events come
    /// after them.
    left: usize,
}

impl Arrivals {
    /// Notes a reading of the clock.
    #[inline]
    pub(super) fn read(&self, now: TimerTime) {
        self.reading.set(now);
    }

    /// The last reading of the clock.
    #[inline]
    pub(super) fn reading(&self) -> TimerTime {
        self.reading.get()
    }

    /// The kernel was asked after this moment.
    #[inline]
    pub(super) fn asked_until(&self) -> TimerTime {
        self.asked_until.get()
    }

    /// Everything that was ready at this moment has been fetched.
    #[inline]
    pub(super) fn seen_until(&self) -> TimerTime {
        self.seen_until.get()
    }

    /// Notes that the kernel was asked with this timeout, after the last reading of the clock.
    #[inline]
    pub(super) fn asked(&self, timeout: Timeout, brought: Brought) {
        let before = self.reading.get();
        let asked = match (brought, timeout) {
            (Brought::Interrupted, _) => return,
            (Brought::Nothing, Timeout::After(limit)) => before.after(limit.min(LONGEST_WAIT)),
            _ => before,
        };
        self.asked_until.set(asked.max(self.asked_until.get()));
        let seen = if let Brought::Batch { events, most } = brought {
            self.after_batch(before, events, most)
        } else {
            self.rest.set(None);
            Some(asked)
        };
        if let Some(seen) = seen {
            self.seen_until.set(seen.max(self.seen_until.get()));
        }
    }

    /// Handles a full batch. Returns the moment up to which everything is fetched, if that is
    /// known.
    #[cold]
    fn after_batch(&self, before: TimerTime, events: usize, most: usize) -> Option<TimerTime> {
        let rest = self.rest.get().unwrap_or(Rest { since: before, left: most });
        let left = rest.left.saturating_sub(events);
        self.rest.set((left > 0).then_some(Rest { left, ..rest }));
        (left == 0).then_some(rest.since)
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    fn at(seconds: u64) -> TimerTime {
        TimerTime::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_wait_that_a_signal_ends_has_seen_nothing() {
        let arrivals = Arrivals::default();
        arrivals.read(at(1));
        arrivals.asked(Timeout::Zero, Brought::All);
        arrivals.read(at(2));
        arrivals.asked(Timeout::Never, Brought::Interrupted);
        assert_eq!((arrivals.seen_until(), arrivals.asked_until()), (at(1), at(1)));
    }

    #[test]
    fn a_wait_that_timed_out_has_seen_all_until_its_end() {
        let arrivals = Arrivals::default();
        arrivals.read(at(1));
        arrivals.asked(Timeout::After(Duration::from_secs(2)), Brought::Nothing);
        assert_eq!(arrivals.seen_until(), at(3));
        // There is no newer reading before the next wait, and the result does not go back.
        arrivals.asked(Timeout::Zero, Brought::All);
        assert_eq!(arrivals.seen_until(), at(3));
        // A wait that events ended may have begun long before.
        arrivals.asked(Timeout::After(Duration::from_secs(9)), Brought::All);
        assert_eq!(arrivals.seen_until(), at(3));
    }

    #[test]
    fn full_batches_count_once_all_that_was_ready_is_fetched() {
        let arrivals = Arrivals::default();
        let batch = Brought::Batch { events: 10, most: 25 };
        for now in 1..=2 {
            arrivals.read(at(now));
            arrivals.asked(Timeout::Zero, batch);
            assert_eq!(arrivals.seen_until(), at(0), "up to 5 events of the first moment are left");
            assert_eq!(arrivals.asked_until(), at(now), "no timer waits for them");
        }
        arrivals.read(at(3));
        arrivals.asked(Timeout::Zero, batch);
        assert_eq!(arrivals.seen_until(), at(1));
        // A loop that always has a full batch never sees everything.
        for now in 4..=6 {
            arrivals.read(at(now));
            arrivals.asked(Timeout::Zero, batch);
        }
        assert_eq!(arrivals.seen_until(), at(4));
        arrivals.read(at(7));
        arrivals.asked(Timeout::Zero, Brought::All);
        assert_eq!(arrivals.seen_until(), at(7));
    }
}
