//! Limits how often a line that a peer can cause is logged.

use std::sync::atomic::{AtomicU64, Ordering};

use super::clock::monotonic;

/// In milliseconds.
const SECOND: u64 = 1_000;

/// Limits a log line to one per second, and counts the others.
///
/// Use one for each log line that a peer can cause. Otherwise a peer can fill a disk.
///
/// ```
/// use wakeful::log::OncePerSecond;
///
/// fn refuse(reason: &str) {
///     static LIMIT: OncePerSecond = OncePerSecond::new();
///     if let Some(count) = LIMIT.pass() {
///         // `count` refusals since the line before, this one included.
///         tracing::warn!(reason, count, "a request was refused");
///     }
/// }
/// # refuse("x");
/// ```
///
/// The last events of a burst are reported only with the next event that is logged, however late
/// that is. For exact figures, keep a separate counter.
///
/// # Threads
/// `Send` and `Sync`. Takes no lock. Each call reads the clock.
#[derive(Debug, Default)]
pub struct OncePerSecond {
    /// When the last line was logged, in milliseconds of [`now`]. 0: never.
    last: AtomicU64,
    unreported: AtomicU64,
}

impl OncePerSecond {
    /// Creates a limit that lets the first event through.
    #[must_use]
    pub const fn new() -> Self {
        Self { last: AtomicU64::new(0), unreported: AtomicU64::new(0) }
    }

    /// Counts an event. If it may be logged, returns the number of events since the last logged
    /// one, including this event.
    #[must_use = "`None` means: do not log"]
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(now())
    }

    fn pass_at(&self, now: u64) -> Option<u64> {
        let last = self.last.load(Ordering::Relaxed);
        let is_due = now >= last + SECOND;
        // If several threads find that it is time, only one logs.
        let swap = |from, to| {
            self.last.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if is_due && swap(last, now) {
            return Some(self.unreported.swap(0, Ordering::Relaxed) + 1);
        }
        self.unreported.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// Milliseconds of a clock that nobody can set. At least 1,000, so that the first event passes.
/// (`Instant` has no number, and a start that is kept in a `OnceLock` could hang a forked child.)
fn now() -> u64 {
    monotonic() / 1_000_000 + SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_a_second_passes_with_the_count_of_all() {
        let limit = OncePerSecond::new();
        assert_eq!(limit.pass_at(1_000), Some(1));
        for _ in 0..41 {
            assert_eq!(limit.pass_at(1_999), None);
        }
        assert_eq!(limit.pass_at(2_000), Some(42));
        assert_eq!(limit.pass_at(2_000), None);
        assert_eq!(limit.pass_at(60_000), Some(2));
        assert_eq!(limit.pass_at(61_000), Some(1));
    }

    #[test]
    fn threads_lose_no_event() {
        let limit = OncePerSecond::new();
        let told = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for second in 1..=1_000 {
                        let count = limit.pass_at(second * SECOND).unwrap_or(0);
                        told.fetch_add(count, Ordering::Relaxed);
                    }
                });
            }
        });
        let last = limit.pass_at(u64::MAX / 2).unwrap_or(0);
        assert_eq!(told.into_inner() + last, 4_001);
    }
}
