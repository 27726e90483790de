//! Where a loop's time goes: to polls, to the rest of its turns, and to idle periods.
//!
//! The clock is read where one of them ends, and there the next one begins: one read a poll and one an idle period, and none besides on the usual
//! path. What lies between (the kernel asked without waiting, events noted, callbacks) counts in the turn, and in the poll behind it only if it is next to nothing.

use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::{Counter, Counters};
use crate::driver::ticks;

/// Slow turns are reported once in so many nanoseconds at most: who writes a log in a slow loop makes it slower.
const REPORT_EVERY: u64 = 1_000_000_000;

pub(crate) struct Stopwatch {
    counters: Arc<Counters>,
    /// Up to when the loop's time has been counted. All in ticks.
    last: Cell<u64>,
    turn_began: Cell<u64>,
    /// A poll above this is looked at more closely.
    notable: Cell<u64>,
    /// And a turn above this; it is slow above the other.
    long: u64,
    slow: u64,
    /// The longest of the notable polls of the last turn that had any.
    longest: Cell<Option<Notable>>,
    reported: Cell<u64>,
    /// Slow turns since then.
    unreported: Cell<u64>,
}

#[derive(Clone, Copy)]
struct Notable {
    took: u64,
    ended: u64,
    spawned_at: &'static Location<'static>,
}

impl Stopwatch {
    /// A turn above `slow` is reported.
    pub(crate) fn new(counters: Arc<Counters>, slow: Duration) -> Self {
        let now = ticks::now();
        let slow = ticks::in_ticks(slow);
        Self {
            counters,
            last: Cell::new(now),
            turn_began: Cell::new(now),
            notable: Cell::new(0),
            long: slow.min(ticks::SHORT),
            slow,
            longest: Cell::new(None),
            reported: Cell::new(0),
            unreported: Cell::new(0),
        }
    }

    /// What has passed since the last measurement was not the loop's time, or is too mixed to count.
    #[inline]
    pub(crate) fn skip(&self) {
        self.last.set(ticks::now());
    }

    /// Up to when the time has been counted: about now, between two polls.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        self.last.get()
    }

    #[inline]
    fn lap(&self) -> u64 {
        let now = ticks::now();
        now.wrapping_sub(self.last.replace(now))
    }

    /// An idle period ends. It began where the last turn ended.
    #[inline]
    pub(crate) fn idle(&self, counter: &Counter) {
        // A sum: what two CPUs' counters differ by cancels out.
        counter.add(self.lap());
    }

    /// The kernel has been asked, and what there was to idle is over.
    #[inline]
    pub(crate) fn turn_begins(&self) {
        self.turn_began.set(self.last.get());
    }

    /// A task was polled, or a closure run.
    #[inline]
    pub(crate) fn polled(&self, spawned_at: &'static Location<'static>) {
        let took = self.lap();
        if took > self.notable.get() {
            let took = self.notable_poll(took, spawned_at);
            self.counters.poll_time.record_ticks(took);
        } else {
            self.counters.poll_time.record_short(took);
        }
    }

    /// The future of `block_on` was polled, between two turns. It is no task, and no part of their times.
    pub(crate) fn polled_root(&self, spawned_at: &'static Location<'static>) {
        let took = self.lap();
        let took = self.notable_poll(took, spawned_at);
        self.report_if_slow(took, 1);
    }

    /// Returns how long it really took.
    #[cold]
    fn notable_poll(&self, took: u64, spawned_at: &'static Location<'static>) -> u64 {
        let took = not_negative(took);
        let so_far = &self.counters.longest_poll;
        if took > so_far.ticks() {
            so_far.set(took, spawned_at);
        }
        // An eighth of a slow turn is worth naming.
        self.notable.set(so_far.ticks().min(self.long / 8));
        let longest = self.longest.get().filter(|longest| self.is_of_this_turn(longest));
        if longest.is_none_or(|longest| took > longest.took) {
            self.longest.set(Some(Notable { took, ended: self.last.get(), spawned_at }));
        }
        took
    }

    fn is_of_this_turn(&self, poll: &Notable) -> bool {
        not_negative(poll.ended.wrapping_sub(self.turn_began.get())) > 0
    }

    #[inline]
    pub(crate) fn turn_ends(&self, polls: u32) {
        let took = self.last.get().wrapping_sub(self.turn_began.get());
        if took > self.long {
            self.long_turn(took, polls);
        } else {
            self.counters.turn_time.record_short(took);
        }
    }

    #[cold]
    fn long_turn(&self, took: u64, polls: u32) {
        let took = not_negative(took);
        self.counters.turn_time.record_ticks(took);
        self.report_if_slow(took, polls);
    }

    fn report_if_slow(&self, took: u64, polls: u32) {
        if took <= self.slow {
            return;
        }
        self.counters.slow_turns.add(1);
        let now = self.last.get();
        let silent_for = now.wrapping_sub(self.reported.get());
        if self.reported.get() != 0 && ticks::nanoseconds(silent_for) < REPORT_EVERY {
            self.unreported.set(self.unreported.get() + 1);
            return;
        }
        self.reported.set(now);
        let (turn, unreported) = (duration(took), self.unreported.take());
        match self.longest.get().filter(|longest| self.is_of_this_turn(longest)) {
            Some(Notable { took, spawned_at, .. }) => tracing::warn!(
                ?turn, polls, longest_poll = ?duration(took), %spawned_at, unreported,
                "slow turn: the task with its longest poll was spawned at `spawned_at`"
            ),
            None => tracing::warn!(
                ?turn,
                polls,
                unreported,
                "slow turn: many polls, or a callback or hook; no poll took an eighth of the threshold"
            ),
        }
    }
}

fn duration(ticks: u64) -> Duration {
    Duration::from_nanos(ticks::nanoseconds(ticks))
}

/// The counters of two CPUs may differ by some ticks: what seems to end before it began took no time.
pub(crate) fn not_negative(took: u64) -> u64 {
    if took > u64::MAX / 2 { 0 } else { took }
}
