//! Starts a thread once in each process. If the thread cannot be started, which costs a system call
//! or more, the next attempt comes some time later.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::sys::clock;

/// How long after a failure the next attempt comes, in nanoseconds.
const AGAIN: u64 = 10_000_000_000;

/// Whether the thread was started. A forked child inherits the memory, but not the thread, so the
/// stamp of the process is kept. See the [module](self).
#[derive(Debug)]
pub(super) struct Once {
    /// The stamp of the process that has started the thread, or 0.
    begun: AtomicU32,
    /// When the next attempt comes, or 0 if the last one succeeded.
    again_at: AtomicU64,
}

impl Once {
    pub(super) const fn new() -> Self {
        Self { begun: AtomicU32::new(0), again_at: AtomicU64::new(0) }
    }

    /// Calls `start`, unless it has succeeded in the process with this `stamp`, or has just failed.
    ///
    /// # Errors
    /// The errors of `start`.
    #[inline]
    pub(super) fn start(
        &self,
        stamp: u32,
        start: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        if self.begun.load(Ordering::Relaxed) == stamp {
            return Ok(());
        }
        self.start_at(clock::monotonic(), stamp, start)
    }

    #[cold]
    fn start_at(
        &self,
        now: u64,
        stamp: u32,
        start: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        if now < self.again_at.load(Ordering::Relaxed)
            || self.begun.swap(stamp, Ordering::Relaxed) == stamp
        {
            return Ok(());
        }
        let started = start();
        self.again_at.store(if started.is_ok() { 0 } else { now + AGAIN }, Ordering::Relaxed);
        if started.is_err() {
            self.begun.store(0, Ordering::Relaxed);
        }
        started
    }

    /// Has the last attempt failed?
    pub(super) fn has_failed(&self) -> bool {
        self.again_at.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_process_starts() {
        let (once, mut started) = (Once::new(), Vec::new());
        let (parent, child) = (1, 2);
        for stamp in [parent, parent, child, child] {
            let start = || {
                started.push(stamp);
                Ok(())
            };
            once.start_at(5, stamp, start).unwrap();
        }
        assert_eq!(started, [parent, child]);
    }

    #[test]
    fn a_start_that_failed_is_tried_again_after_a_while_and_not_before() {
        let (once, mut failures) = (Once::new(), Vec::new());
        for second in 0..30 {
            let now = second * 1_000_000_000;
            let failed = once.start_at(now, 1, || Err(io::ErrorKind::OutOfMemory.into()));
            failures.extend(failed.err().map(|_| second));
            assert!(once.has_failed());
        }
        assert_eq!(failures, [0, 10, 20]);
        once.start_at(3 * AGAIN, 1, || Ok(())).unwrap();
        assert!(!once.has_failed());
        once.start_at(9 * AGAIN, 1, || unreachable!("it has succeeded")).unwrap();
    }
}
