//! How long somebody waits for the writer's thread: until a deadline, but not so long for a
//! destination that nobody reads.
//!
//! A reader that is slow takes something now and then, and gets all of the time, so that no line is
//! lost. One that takes nothing for a quarter of it will hardly take everything in the rest. A
//! server that ends has several such waits one after another: of its access log, of its log, and of
//! its master's log.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::counts::Counts;
use crate::time::deadline_after;

/// This part of the time the destination may take nothing.
const PART: u32 = 4;

pub(super) struct Patience<'a> {
    counts: &'a Counts,
    deadline: Instant,
    pause: Duration,
    /// The write that waited at the last look, and since when it is known to.
    waiting: (u64, Instant),
}

impl<'a> Patience<'a> {
    pub(super) fn new(counts: &'a Counts, timeout: Duration) -> Self {
        Self::since(Instant::now(), counts, timeout)
    }

    fn since(now: Instant, counts: &'a Counts, timeout: Duration) -> Self {
        let (deadline, pause) = (deadline_after(now, timeout), timeout / PART);
        Self { counts, deadline, pause, waiting: (counts.waiting.load(Ordering::Relaxed), now) }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How long the destination may take nothing.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// How long to wait until [`is_over`](Self::is_over) is asked again: it only sees what waits
    /// when it looks.
    pub(super) fn until_next_look(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).min(self.pause / PART)
    }

    pub(super) fn is_over(&mut self) -> bool {
        self.is_over_at(Instant::now())
    }

    fn is_over_at(&mut self, now: Instant) -> bool {
        let write = self.counts.waiting.load(Ordering::Relaxed);
        let (last, since) = self.waiting;
        if write == 0 || write != last {
            self.waiting = (write, now);
            return now >= self.deadline;
        }
        now >= self.deadline || now.saturating_duration_since(since) >= self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_time_is_for_a_destination_that_takes_nothing() {
        let (counts, now) = (Counts::default(), Instant::now());
        let is_waiting = |write| counts.waiting.store(write, Ordering::Relaxed);
        let mut patience = Patience::since(now, &counts, Duration::from_secs(40));
        let mut is_over_after = |seconds| patience.is_over_at(now + Duration::from_secs(seconds));
        // The thread writes to no pipe.
        assert!(!is_over_after(20));
        is_waiting(1);
        assert!(!is_over_after(21) && !is_over_after(30));
        // A slow reader.
        is_waiting(2);
        assert!(!is_over_after(32) && !is_over_after(38));
        is_waiting(3);
        assert!(!is_over_after(39) && is_over_after(40));
        // None.
        let mut patience = Patience::since(now, &counts, Duration::from_secs(40));
        let mut is_over_after = |seconds| patience.is_over_at(now + Duration::from_secs(seconds));
        assert!(!is_over_after(9) && is_over_after(10));
    }
}
