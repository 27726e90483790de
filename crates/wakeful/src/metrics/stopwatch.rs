//! Where a loop's time goes: to polls, to the rest of its turns, and to idle periods.
//!
//! The clock is read where one of them ends, and the next one begins there. So there is one reading
//! for each poll and one for each idle period, and usually no other. The time between polls (for
//! asking the kernel without waiting, noting events, callbacks) counts in the turn. It counts in
//! the next poll only if it is negligible.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::task_names::name_of;
use super::{Counter, Counters};
use crate::sys::clock::{Clock, SHORT, between};
use crate::sys::panics;

/// Slow turns are reported no more often than this, in nanoseconds, because writing a log in a slow
/// loop makes the loop slower.
const REPORT_EVERY: u64 = 1_000_000_000;

/// How long a clock reading may be used again.
const RECENT: Duration = Duration::from_millis(1);

pub(crate) struct Stopwatch {
    counters: Arc<Counters>,
    clock: Clock,
    /// The stamp up to which the loop's time has been counted. All stamps are in ticks.
    last: Cell<u64>,
    turn_began: Cell<u64>,
    /// A poll above this is examined more closely.
    notable: Cell<u64>,
    /// A turn above `long` is examined more closely. A turn above `slow` is slow.
    long: u64,
    slow: u64,
    recent: u64,
    /// The longest of the notable polls of the last turn that had any.
    longest: RefCell<Option<Notable>>,
    /// Work that takes longer than this gets a name. It is no less than `notable`, so that the poll
    /// is noted, too.
    worth_naming: u64,
    /// When the work of the running poll was last examined.
    looked: Cell<u64>,
    /// The slowest work of the running poll, or of an earlier one.
    named: RefCell<Option<Named>>,
    reported: Cell<u64>,
    /// The number of slow turns since the last report.
    unreported: Cell<u64>,
}

/// The polls of a turn.
pub(crate) struct Polls {
    pub(crate) number: u32,
    /// How long the first poll took, until there is a second one.
    alone: u64,
}

/// Stands for a turn with more than one poll. It is longer than any poll that is not notable.
const NOT_ALONE: u64 = u64::MAX;

#[derive(Debug)]
struct Notable {
    took: u64,
    ended: u64,
    spawned_at: &'static Location<'static>,
    slowest: Option<Named>,
}

/// Slow work of a poll.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlowWork {
    took: u64,
    ended: u64,
}

#[derive(Debug)]
struct Named {
    name: String,
    work: SlowWork,
}

impl Stopwatch {
    /// A turn above `slow` is reported.
    pub(crate) fn new(counters: Arc<Counters>, slow: Duration) -> Self {
        let clock = Clock::get();
        let now = clock.now();
        let slow = clock.ticks(slow);
        Self {
            counters,
            clock,
            last: Cell::new(now),
            turn_began: Cell::new(now),
            notable: Cell::new(0),
            long: slow.min(SHORT),
            slow,
            recent: clock.ticks(RECENT),
            longest: RefCell::default(),
            worth_naming: slow.min(SHORT) / 8,
            looked: Cell::new(now),
            named: RefCell::default(),
            reported: Cell::new(0),
            unreported: Cell::new(0),
        }
    }

    /// Notes that the time since the last stamp belongs to no poll and no idle period. In the
    /// middle of a turn it counts in the turn, otherwise nowhere.
    #[inline]
    pub(crate) fn skip(&self) {
        self.last.set(self.clock.now());
    }

    /// The last stamp, in ticks.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        self.last.get()
    }

    /// This moment, in ticks.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        self.clock.now()
    }

    /// Is that stamp no older than a millisecond? If the stamp is from a counter that was ahead,
    /// the answer is no.
    #[inline]
    pub(crate) fn is_recent(&self, stamp: u64) -> bool {
        self.clock.now().wrapping_sub(stamp) <= self.recent
    }

    #[inline]
    fn lap(&self) -> u64 {
        let now = self.clock.now();
        now.wrapping_sub(self.last.replace(now))
    }

    /// Ends an idle period, which began where the last turn ended.
    #[inline]
    pub(crate) fn idle(&self, counter: &Counter) {
        // The counters of two CPUs differ by some ticks, and the counter of a virtual machine that
        // was moved may start again.
        counter.add(between(0, self.lap()));
    }

    /// Begins a turn. The kernel has been asked, and the idle period is over.
    #[inline]
    pub(crate) fn turn_begins(&self) -> Polls {
        self.turn_began.set(self.last.get());
        Polls { number: 0, alone: NOT_ALONE }
    }

    /// Called after the first poll of a task in a turn, or the first closure.
    #[inline]
    pub(crate) fn polled_first(&self, spawned_at: &'static Location<'static>, polls: &mut Polls) {
        let took = self.lap();
        polls.number = 1;
        if took > self.notable.get() {
            self.notable_poll(took, spawned_at);
        } else {
            polls.alone = took;
        }
    }

    /// Called after each further poll or closure.
    #[inline]
    pub(crate) fn polled_next(&self, spawned_at: &'static Location<'static>, polls: &mut Polls) {
        let took = self.lap();
        polls.number += 1;
        self.settle(polls);
        if took > self.notable.get() {
            self.notable_poll(took, spawned_at);
        } else {
            self.counters.poll_time.record_short(took, &self.clock);
        }
    }

    /// Called when the first poll is not the only one.
    #[inline]
    fn settle(&self, polls: &mut Polls) {
        if polls.alone != NOT_ALONE {
            self.counters.poll_time.record_short(polls.alone, &self.clock);
            polls.alone = NOT_ALONE;
        }
    }

    /// Called after a poll of the future of `block_on`, between two turns. It is no task, and its
    /// time is in no turn.
    pub(crate) fn polled_root(&self, spawned_at: &'static Location<'static>) {
        let took = between(0, self.lap());
        let slowest = self.note_longest(took, spawned_at);
        if took > self.slow {
            let ended = self.last.get();
            self.report(took, 1, Some(Notable { took, ended, spawned_at, slowest }));
        }
    }

    /// The work of the running poll since it began, or since the last call in it, if that was slow.
    #[inline]
    pub(crate) fn slow_work(&self) -> Option<SlowWork> {
        let ended = self.clock.now();
        let looked = self.looked.replace(ended);
        // Both moments are in the past. The later one counts.
        let took = ended.wrapping_sub(looked).min(ended.wrapping_sub(self.last.get()));
        (took > self.worth_naming).then_some(SlowWork { took, ended })
    }

    /// Keeps the name of the poll's slowest work.
    pub(crate) fn name(&self, work: SlowWork, name: String) {
        let SlowWork { took, ended } = work;
        let work = SlowWork { took: between(0, took), ended };
        let mut named = self.named.borrow_mut();
        let slowest = named.as_ref().filter(|named| between(self.last.get(), named.work.ended) > 0);
        if slowest.is_none_or(|slowest| work.took > slowest.work.took) {
            *named = Some(Named { name, work });
        }
    }

    #[cold]
    fn notable_poll(&self, took: u64, spawned_at: &'static Location<'static>) {
        let took = between(0, took);
        let slowest = self.note_longest(took, spawned_at);
        let mut longest = self.longest.borrow_mut();
        let so_far = longest.as_ref().filter(|longest| self.is_of_this_turn(longest));
        if so_far.is_none_or(|longest| took > longest.took) {
            *longest = Some(Notable { took, ended: self.last.get(), spawned_at, slowest });
        }
        self.counters.poll_time.record_ticks(took, &self.clock);
    }

    /// Returns the name of the poll's slowest work.
    fn note_longest(&self, took: u64, spawned_at: &'static Location<'static>) -> Option<Named> {
        let so_far = &self.counters.longest_poll;
        if took > so_far.ticks() {
            so_far.set(took, spawned_at);
        }
        // An eighth of a slow turn is worth naming.
        self.notable.set(so_far.ticks().min(self.worth_naming));
        // A name from before the poll, given by a callback, does not belong to the poll.
        let began = self.last.get().wrapping_sub(took);
        self.named.take().filter(|named| between(began, named.work.ended) > 0)
    }

    fn is_of_this_turn(&self, poll: &Notable) -> bool {
        between(self.turn_began.get(), poll.ended) > 0
    }

    #[inline]
    pub(crate) fn turn_ends(&self, mut polls: Polls) {
        let took = self.last.get().wrapping_sub(self.turn_began.get());
        // This is the case for most turns of a loop that is not busy. They are counted once, as
        // poll and as turn.
        if took == polls.alone {
            self.counters.lone_polls.record_short(took, &self.clock);
        } else {
            self.settle(&mut polls);
            self.turn_of_many(took, polls.number);
        }
    }

    #[inline(never)]
    fn turn_of_many(&self, took: u64, polls: u32) {
        if took <= self.long {
            self.counters.turn_time.record_short(took, &self.clock);
            if polls == 0 {
                // Without this there may be no stamp for as long as a ring ends each turn and the
                // turns have nothing to do.
                self.skip();
            }
            return;
        }
        let took = between(self.turn_began.get(), self.last.get());
        self.counters.turn_time.record_ticks(took, &self.clock);
        if took > self.slow {
            let longest = self.longest.take().filter(|longest| self.is_of_this_turn(longest));
            self.report(took, polls, longest);
        }
    }

    fn report(&self, took: u64, polls: u32, longest: Option<Notable>) {
        self.counters.slow_turns.add(1);
        let now = self.last.get();
        let silent_for = now.wrapping_sub(self.reported.get());
        if self.reported.get() != 0 && self.clock.nanoseconds(silent_for) < REPORT_EVERY {
            self.unreported.set(self.unreported.get() + 1);
            return;
        }
        self.reported.set(now);
        let (turn, unreported) = (self.clock.duration(took), self.unreported.take());
        let threshold = self.clock.duration(self.slow);
        match longest {
            Some(Notable { took, spawned_at, slowest: Some(Named { name, work }), .. }) => {
                panics::log!(
                    warn,
                    ?turn,
                    ?threshold,
                    polls,
                    longest_poll = ?self.clock.duration(took),
                    slowest = name.as_str(),
                    slowest_took = ?self.clock.duration(work.took),
                    %spawned_at,
                    task = name_of(spawned_at),
                    unreported,
                    "slow turn: one poll took most of it, and `slowest` names what took longest in that poll. The rest may be \
                     another thread that had the CPU"
                );
            }
            Some(Notable { took, spawned_at, .. }) => panics::log!(
                warn,
                ?turn,
                ?threshold,
                polls,
                longest_poll = ?self.clock.duration(took),
                %spawned_at,
                task = name_of(spawned_at),
                unreported,
                "slow turn: `spawned_at` is where the task with the longest poll was spawned. Move blocking calls and long computations to \
                 `task::spawn_blocking`; wrap a source that is always ready, such as a channel, in `task::budgeted`"
            ),
            None => panics::log!(
                warn,
                ?turn,
                ?threshold,
                polls,
                unreported,
                "slow turn: many polls, or a callback or hook; no poll took an eighth of the threshold"
            ),
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_recent_for_a_millisecond_and_not_if_the_counter_has_jumped_back() {
        let stopwatch = Stopwatch::new(Arc::default(), Duration::from_secs(1));
        let hour = stopwatch.clock.ticks(Duration::from_secs(3600));
        let now = stopwatch.stamp();
        assert!(!stopwatch.is_recent(now.wrapping_sub(hour)));
        assert!(!stopwatch.is_recent(now.wrapping_add(hour)));
        // The thread may lose its CPU between the two calls.
        assert!((0..100).any(|_| stopwatch.is_recent(stopwatch.stamp())));
    }

    #[test]
    fn a_counter_that_jumps_back_takes_no_time() {
        let stopwatch = Stopwatch::new(Arc::default(), Duration::from_secs(1));
        let counter = &stopwatch.counters.park_time;
        // The last stamp is from a counter that was far ahead.
        stopwatch.last.set(stopwatch.clock.now().wrapping_add(u64::MAX / 4));
        stopwatch.idle(counter);
        assert_eq!(stopwatch.counters.idle_ticks(), 0);
        stopwatch.idle(counter);
        let idle = stopwatch.clock.duration(stopwatch.counters.idle_ticks());
        assert!(idle < Duration::from_secs(60), "{idle:?}");
    }
}
