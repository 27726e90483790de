//! How long a caller waits for the writer's thread, or for room if there is none: until a deadline,
//! but less long if nobody reads the destination.
//!
//! A slow reader takes something now and then. It gets the whole time, so that no line is lost. A
//! reader that takes nothing for a quarter of the time will hardly take everything in the rest.
//! This matters because a server that ends has several such waits in a row: for its access log, for
//! its log, and for its master's log.
//!
//! A process that was stopped (SIGSTOP, a suspended machine) finds its deadlines passed when it
//! runs again. Its writer's thread was stopped as well, and perhaps the reader, so that time does
//! not count.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::counts::Counts;
use crate::time::deadline_after;

/// The wait ends if the destination has taken nothing for one such part of the time.
const PART: u32 = 4;

/// How much later than planned a look may come and still count in full.
const LATE: Duration = Duration::from_millis(100);

pub(super) struct Patience<'a> {
    counts: &'a Counts,
    deadline: Instant,
    pause: Duration,
    /// When it was last checked.
    looked: Instant,
    /// The write that waited at the last check, and since when it is known to wait.
    waiting: (u64, Instant),
}

impl<'a> Patience<'a> {
    pub(super) fn new(counts: &'a Counts, timeout: Duration) -> Self {
        Self::since(Instant::now(), counts, timeout)
    }

    fn since(now: Instant, counts: &'a Counts, timeout: Duration) -> Self {
        let (deadline, pause) = (deadline_after(now, timeout), timeout / PART);
        let waiting = (counts.waiting.load(Ordering::Relaxed), now);
        Self { counts, deadline, pause, looked: now, waiting }
    }

    /// Called before a wait, if the caller has done something else since the last check. That is no
    /// pause of the process.
    pub(super) fn begins_to_look(&mut self) {
        self.looked = Instant::now();
    }

    /// How long to wait before [`is_over`](Self::is_over) is called again. It sees a waiting write
    /// only when it is called.
    pub(super) fn until_next_look(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).min(self.planned())
    }

    fn planned(&self) -> Duration {
        self.pause / PART
    }

    pub(super) fn is_over(&mut self) -> bool {
        self.is_over_at(Instant::now())
    }

    fn is_over_at(&mut self, now: Instant) -> bool {
        let stopped = now.saturating_duration_since(self.looked);
        let stopped = stopped.saturating_sub(self.planned() + LATE);
        self.looked = now;
        self.deadline = deadline_after(self.deadline, stopped);
        self.waiting.1 += stopped;
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

    const TIMEOUT: Duration = Duration::from_secs(40);
    const SECOND: Duration = Duration::from_secs(1);

    /// After how many seconds it is over. `waits_for` says which write waits at a second.
    fn over_after(waits_for: impl Fn(u64) -> u64) -> u64 {
        let (counts, now) = (Counts::default(), Instant::now());
        counts.waiting.store(waits_for(0), Ordering::Relaxed);
        let mut patience = Patience::since(now, &counts, TIMEOUT);
        let is_over = |second: &u64| {
            counts.waiting.store(waits_for(*second), Ordering::Relaxed);
            patience.is_over_at(now + Duration::from_secs(*second))
        };
        (1..).find(is_over).unwrap()
    }

    #[test]
    fn a_quarter_of_the_time_is_for_a_destination_that_takes_nothing() {
        assert_eq!(over_after(|_| 0), 40, "the thread is not writing to a pipe");
        assert_eq!(over_after(|second| 1 + second / 9), 40, "the reader is slow");
        assert_eq!(over_after(|_| 1), 10, "there is no reader");
        assert_eq!(over_after(|second| u64::from(second > 20)), 31, "there is none any more");
    }

    #[test]
    fn a_pause_of_the_process_does_not_count() {
        let (counts, now) = (Counts::default(), Instant::now());
        let mut patience = Patience::since(now, &counts, TIMEOUT);
        assert!(!patience.is_over_at(now + 3600 * SECOND));
        counts.waiting.store(1, Ordering::Relaxed);
        assert!(!patience.is_over_at(now + 3601 * SECOND));
        assert!(!patience.is_over_at(now + 7200 * SECOND));
    }
}
