//! A grace period that counts only time in which the process has run.
//!
//! A process that was stopped (SIGSTOP, a suspended machine) finds its deadlines passed when it
//! runs again. What it waited for could not happen meanwhile, because its other threads were
//! stopped as well. So the wait is cut into slices, and a slice that took much longer than planned
//! counts only for its planned length and [`LATE`].

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Short slices, so that a pause of the process costs the waiter little of its grace, but long
/// enough to cost no CPU time.
const SLICE: Duration = Duration::from_millis(50);
/// How much later than planned a slice may end and still count in full. A thread that waits for its
/// CPU is late by some slices of the scheduler.
const LATE: Duration = Duration::from_millis(100);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Patience {
    left: Duration,
}

impl Patience {
    pub(crate) fn new(grace: Duration) -> Self {
        Self { left: grace }
    }

    /// Returns how much is left.
    pub(crate) fn left(&self) -> Duration {
        self.left
    }

    /// Returns how long the next step of a wait may take. The caller says what it
    /// [took](Self::took).
    pub(crate) fn slice(&self) -> Duration {
        self.left.min(SLICE)
    }

    /// Waits for a message until the patience is used up. It checks at least once, even if nothing
    /// is left.
    ///
    /// # Errors
    /// The same as for [`Receiver::recv_timeout`].
    pub(crate) fn wait_for<T>(&mut self, receiver: &Receiver<T>) -> Result<T, RecvTimeoutError> {
        loop {
            let slice = self.slice();
            let began = Instant::now();
            let received = receiver.recv_timeout(slice);
            self.took(slice, began.elapsed());
            if !matches!(received, Err(RecvTimeoutError::Timeout)) || self.left.is_zero() {
                return received;
            }
        }
    }

    /// Counts a step of a wait that should have taken at most `planned`, and took `took`.
    pub(crate) fn took(&mut self, planned: Duration, took: Duration) {
        self.left = self.left.saturating_sub(took.min(planned + LATE));
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_pause_counts_as_one_slice() {
        let mut patience = Patience::new(Duration::from_secs(10));
        patience.took(SLICE, Duration::from_secs(3600));
        assert!(patience.left() > Duration::from_secs(9));
        for _ in 0..200 {
            patience.took(SLICE, SLICE);
        }
        assert_eq!(patience.left(), Duration::ZERO);
    }

    #[test]
    fn what_came_is_received_though_nothing_is_left() {
        let (sender, receiver) = mpsc::channel();
        sender.send(7).unwrap();
        assert_eq!(Patience::new(Duration::ZERO).wait_for(&receiver), Ok(7));
        let mut short = Patience::new(Duration::from_millis(2));
        assert_eq!(short.wait_for(&receiver), Err(RecvTimeoutError::Timeout));
        drop(sender);
        let mut long = Patience::new(Duration::MAX);
        assert_eq!(long.wait_for(&receiver), Err(RecvTimeoutError::Disconnected));
    }
}
