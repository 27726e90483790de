//! How slow a client may be: what it does is counted as it goes by, and looked at with each tick.

use std::cell::Cell;
use std::time::Duration;

use super::MinRate;

/// Waiting for a client, and how much it does meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) is_waiting: Cell<bool>,
    pub(crate) bytes: Cell<u64>,
    /// For how long, as far as it was looked at, and how much there was when that began.
    waited: Cell<Duration>,
    from: Cell<u64>,
}

impl Waiting {
    /// Looked at `passed` after the last time: has it done less than `rate` for a whole window?
    pub(crate) fn is_too_slow(&self, rate: MinRate, passed: Duration) -> bool {
        if !self.is_waiting.get() {
            self.waited.set(Duration::ZERO);
            self.from.set(self.bytes.get());
            return false;
        }
        let waited = self.waited.get() + passed;
        self.waited.set(waited);
        if waited < rate.window {
            return false;
        }
        self.waited.set(Duration::ZERO);
        let done = self.bytes.get() - self.from.replace(self.bytes.get());
        (done as f64) < rate.bytes_per_second as f64 * waited.as_secs_f64()
    }

    /// Nothing has come since the window began.
    pub(crate) fn is_silent(&self) -> bool {
        self.bytes.get() == self.from.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: MinRate = MinRate { bytes_per_second: 100, window: Duration::from_secs(4) };
    const SECOND: Duration = Duration::from_secs(1);

    fn add(waiting: &Waiting, bytes: u64) {
        waiting.bytes.set(waiting.bytes.get() + bytes);
    }

    #[test]
    fn a_client_is_too_slow_when_it_does_too_little_for_a_whole_window() {
        let waiting = Waiting::default();
        waiting.is_waiting.set(true);
        for second in 1..=12 {
            add(&waiting, 100);
            assert!(!waiting.is_too_slow(RATE, SECOND), "at {second} s");
        }
        // A burst counts in its window only.
        add(&waiting, 10_000);
        for _ in 0..4 {
            assert!(!waiting.is_too_slow(RATE, SECOND));
        }
        for _ in 0..3 {
            add(&waiting, 99);
            assert!(!waiting.is_too_slow(RATE, SECOND));
        }
        assert!(waiting.is_too_slow(RATE, SECOND));
    }

    #[test]
    fn who_is_not_waited_for_may_be_slow() {
        let waiting = Waiting::default();
        for second in 0..100 {
            waiting.is_waiting.set(second % 4 != 0);
            assert!(!waiting.is_too_slow(RATE, SECOND));
        }
    }
}
