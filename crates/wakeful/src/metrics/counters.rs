//! The counters of one loop. Only the loop's thread writes them, and any thread may read them. A
//! count costs the loop an addition in memory, not an atomic read-modify-write, and a reader never
//! slows it down.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::LoopMetrics;
use super::histogram::{BUCKETS, Histogram};
use super::hold_state::HoldStateNow;
use super::longest::LongestSoFar;
use crate::sys::clock::Clock;

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now.wrapping_add(more), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A distribution with one writer: the number of values for each number of binary digits, and the
/// sum of the values.
#[derive(Debug)]
pub(crate) struct Distribution {
    buckets: [Counter; BUCKETS],
    sum: Counter,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Counter::default()), sum: Counter::default() }
    }
}

impl Distribution {
    /// Counts a value, and adds `to_sum` to the sum, which may have another unit.
    #[inline]
    fn add(&self, value: u64, to_sum: u64) {
        // 0 counts as 1, which saves an instruction compared with a bucket of its own.
        self.buckets[63 - (value | 1).leading_zeros() as usize].add(1);
        self.sum.add(to_sum);
    }

    /// Records a number, or a time in nanoseconds.
    #[inline]
    pub(crate) fn record(&self, value: u64) {
        self.add(value, value);
    }

    /// Records a time of at most [`SHORT`](crate::sys::clock::SHORT) ticks.
    #[inline]
    pub(crate) fn record_short(&self, ticks: u64, clock: &Clock) {
        self.add(clock.short(ticks), ticks);
    }

    /// Records a time in ticks.
    pub(crate) fn record_ticks(&self, ticks: u64, clock: &Clock) {
        self.add(clock.nanoseconds(ticks), ticks);
    }

    fn read(&self) -> Histogram {
        let buckets = std::array::from_fn(|bucket| self.buckets[bucket].get());
        Histogram { buckets, sum: self.sum.get() }
    }

    /// Reads a distribution whose sum is in ticks.
    fn read_ticks(&self, clock: &Clock) -> Histogram {
        let Histogram { buckets, sum } = self.read();
        Histogram { buckets, sum: clock.nanoseconds(sum) }
    }
}

/// The counters of one loop, on cache lines of their own.
#[derive(Debug, Default)]
pub(crate) struct Counters(CachePadded<Fields>);

#[derive(Debug, Default)]
pub(crate) struct Fields {
    pub(crate) turns: Counter,
    pub(crate) waits: Counter,
    pub(crate) parks: Counter,
    /// In ticks, like every time here without another unit.
    pub(crate) park_time: Counter,
    pub(crate) spin_time: Counter,
    /// The time slept while CPUs were held. It is not in `park_time`.
    pub(crate) held_time: Counter,
    pub(crate) hold: HoldStateNow,
    pub(crate) spin_hits: Counter,
    pub(crate) spin_misses: Counter,
    pub(crate) gave_way: Counter,
    pub(crate) events: Counter,
    pub(crate) remote: Counter,
    pub(crate) timers: Counter,
    pub(crate) callbacks: Counter,
    pub(crate) panics: Counter,
    pub(crate) budget_exhaustions: Counter,
    pub(crate) forced_yields: Counter,
    pub(crate) slow_turns: Counter,
    /// Turns with a single poll, which took the whole turn. They are in neither of the next two.
    pub(crate) lone_polls: Distribution,
    pub(crate) turn_time: Distribution,
    pub(crate) poll_time: Distribution,
    pub(crate) longest_poll: LongestSoFar,
    pub(crate) remote_latency: Distribution,
    /// In nanoseconds.
    pub(crate) timer_lateness: Distribution,
    /// Waits with more than one event. The other `events` came alone.
    pub(crate) events_per_wait: Distribution,
    /// Turns with ready tasks. In the other `turns` there were none.
    pub(crate) queue_depth: Distribution,
}

impl std::ops::Deref for Counters {
    type Target = Fields;

    #[inline]
    fn deref(&self) -> &Fields {
        &self.0
    }
}

impl Counters {
    /// For how long the loop has slept and spun, in ticks.
    pub(crate) fn idle_ticks(&self) -> u64 {
        self.park_ticks().wrapping_add(self.spin_time.get())
    }

    /// Rises with each event, and with whatever other threads have sent.
    pub(crate) fn done(&self) -> u64 {
        self.events.get().wrapping_add(self.remote.get())
    }

    fn park_ticks(&self) -> u64 {
        self.park_time.get().wrapping_add(self.held_time.get())
    }

    pub(crate) fn read(&self) -> LoopMetrics {
        let clock = Clock::get();
        let time = |ticks: &Counter| clock.duration(ticks.get());
        let lone_polls = self.lone_polls.read_ticks(&clock);
        let poll_time = self.poll_time.read_ticks(&clock).and(&lone_polls);
        let (turns, events) = (self.turns.get(), self.events.get());
        let together = self.events_per_wait.read();
        let queued = self.queue_depth.read();
        LoopMetrics {
            turns,
            waits: self.waits.get(),
            parks: self.parks.get(),
            park_time: clock.duration(self.park_ticks()),
            held_time: time(&self.held_time),
            hold: self.hold.get(),
            spin_time: time(&self.spin_time),
            spin_hits: self.spin_hits.get(),
            spin_misses: self.spin_misses.get(),
            gave_way: self.gave_way.get(),
            events,
            events_per_wait: together.and_times(1, events.saturating_sub(together.sum())),
            polls: poll_time.count(),
            poll_time,
            longest_poll: self.longest_poll.read(),
            turn_time: self.turn_time.read_ticks(&clock).and(&lone_polls),
            slow_turns: self.slow_turns.get(),
            queue_depth: queued.and_times(0, turns.saturating_sub(queued.count())),
            budget_exhaustions: self.budget_exhaustions.get(),
            forced_yields: self.forced_yields.get(),
            remote: self.remote.get(),
            remote_latency: self.remote_latency.read_ticks(&clock),
            timers: self.timers.get(),
            timer_lateness: self.timer_lateness.read(),
            callbacks: self.callbacks.get(),
            panics: self.panics.get(),
        }
    }
}
