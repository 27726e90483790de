use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::{Sleep, deadline_after, now, sleep_until};

/// Returns an interval that ticks every `period`, the first time at once.
///
/// ```
/// use std::time::Duration;
///
/// wakeful::block_on(async {
///     let mut interval = wakeful::time::interval(Duration::from_micros(200));
///     let first = interval.tick().await;
///     let second = interval.tick().await;
///     assert_eq!(second - first, Duration::from_micros(200));
/// });
/// ```
///
/// # Panics
/// If `period` is zero.
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(now(), period)
}

/// Returns an interval that ticks every `period`, the first time at `start`.
///
/// # Panics
/// If `period` is zero.
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval's period must not be zero");
    Interval { sleep: sleep_until(start), period, missed: MissedTickBehavior::default() }
}

/// What an [`Interval`] does after it has missed ticks. The default is [`Burst`](Self::Burst).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissedTickBehavior {
    /// Deliver all of them, one after the other without waiting, until it has caught up with the
    /// schedule.
    #[default]
    Burst,
    /// Deliver one tick at once, and the next one a period after it.
    Delay,
    /// Deliver one tick at once, and the next one at the next moment of the original schedule.
    Skip,
}

/// Ticks at a fixed rate. [`interval`] and [`interval_at`] return it.
///
/// # Threads
/// `Send` and `Sync`. Like [`Sleep`](super::Sleep), it belongs to the loop that polls it.
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    /// Waits for the next tick, and returns the moment for which it was scheduled.
    ///
    /// # Cancel safety
    /// Cancel-safe: only a call that returns takes a tick.
    ///
    /// # Panics
    /// If it has to wait on a thread where no loop runs.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick, for hand-written futures. See [`tick`](Self::tick).
    ///
    /// # Panics
    /// The same as for [`tick`](Self::tick).
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(cx));
        let due = self.sleep.deadline();
        let next = self.next_after(due, now());
        self.sleep.reset(next);
        Poll::Ready(due)
    }

    /// Restarts the interval: the next tick is due one period from now. A task that waits in
    /// [`poll_tick`](Self::poll_tick) is woken at the new time. See [`Sleep::reset`].
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Restarts the interval: the next tick is due now. See [`reset`](Self::reset).
    pub fn reset_immediately(&mut self) {
        self.reset_at(now());
    }

    /// Restarts the interval: the next tick is due when `after` has passed from now. See
    /// [`reset`](Self::reset).
    pub fn reset_after(&mut self, after: Duration) {
        self.reset_at(deadline_after(now(), after));
    }

    /// Restarts the interval: the next tick is due at `deadline`, and the others follow at the
    /// interval's period. If the deadline has passed, it counts as a missed tick. See
    /// [`reset`](Self::reset).
    pub fn reset_at(&mut self, deadline: Instant) {
        self.sleep.reset(deadline);
    }

    /// Returns the time between two ticks.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Sets what the interval does after it has missed ticks.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    /// Returns what the interval does after it has missed ticks.
    #[must_use]
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    fn next_after(&self, due: Instant, now: Instant) -> Instant {
        let regular = deadline_after(due, self.period);
        if now < regular {
            return regular;
        }
        match self.missed {
            MissedTickBehavior::Burst => regular,
            MissedTickBehavior::Delay => deadline_after(now, self.period),
            MissedTickBehavior::Skip => {
                let into_period = now.duration_since(due).as_nanos() % self.period.as_nanos();
                // This is less than the period. A missed period fits into a `u64`, because it is
                // under 584 years.
                let into_period = Duration::from_nanos(into_period as u64);
                deadline_after(now, self.period - into_period)
            }
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn missed_ticks_by_policy() {
        let due = Instant::now();
        let ms = Duration::from_millis;
        let mut interval = interval_at(due, ms(10));
        let mut next = |behavior, late| {
            interval.set_missed_tick_behavior(behavior);
            interval.next_after(due, due + late) - due
        };
        for behavior in
            [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip]
        {
            assert_eq!(next(behavior, ms(3)), ms(10), "not missed");
        }
        assert_eq!(next(MissedTickBehavior::Burst, ms(35)), ms(10));
        assert_eq!(next(MissedTickBehavior::Delay, ms(35)), ms(45));
        assert_eq!(next(MissedTickBehavior::Skip, ms(35)), ms(40));
        assert_eq!(next(MissedTickBehavior::Skip, ms(40)), ms(50));
    }
}
