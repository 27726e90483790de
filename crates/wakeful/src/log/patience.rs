//! How long a caller waits for the writer's thread: until a deadline, but less long if nobody reads
//! the destination.
//!
//! A slow reader takes something now and then. It gets the whole time, so that no line is lost. A
//! reader that takes nothing for a quarter of the time will hardly take everything in the rest.
//! This matters because a server that ends has several such waits in a row: for its access log, for
//! its log, and for its master's log.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::counts::Counts;
use crate::time::deadline_after;

/// The wait ends if the destination has taken nothing for one such part of the time.
const PART: u32 = 4;

pub(super) struct Patience<'a> {
    counts: &'a Counts,
    deadline: Instant,
    pause: Duration,
    /// The write that waited at the last check, and since when it is known to wait.
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

    /// How long the destination may take nothing before the wait ends.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// How long to wait before [`is_over`](Self::is_over) is called again. It sees a waiting write
    /// only when it is called.
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
        // The thread is not writing to a pipe.
        assert!(!is_over_after(20));
        is_waiting(1);
        assert!(!is_over_after(21) && !is_over_after(30));
        // The reader is slow.
        is_waiting(2);
        assert!(!is_over_after(32) && !is_over_after(38));
        is_waiting(3);
        assert!(!is_over_after(39) && is_over_after(40));
        // There is no reader.
        let mut patience = Patience::since(now, &counts, Duration::from_secs(40));
        let mut is_over_after = |seconds| patience.is_over_at(now + Duration::from_secs(seconds));
        assert!(!is_over_after(9) && is_over_after(10));
    }
}
