//! The minimum rate of a client that sends: its bytes are counted as they pass, and checked at each
//! tick.

use std::cell::Cell;
use std::time::Duration;

use super::MinRate;

/// Measures how many bytes a client sends while the server waits for it.
#[derive(Debug, Default)]
pub(crate) struct RateMeter {
    is_waiting: Cell<bool>,
    bytes: Cell<u64>,
    /// For how long the server has waited, according to the checks so far, and how many bytes there
    /// were at the beginning.
    waited: Cell<Duration>,
    from: Cell<u64>,
}

impl RateMeter {
    /// Notes whether the server waits for the client.
    pub(crate) fn wait(&self, is_waiting: bool) {
        self.is_waiting.set(is_waiting);
    }

    /// Returns how many bytes went by in all.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Notes how many bytes went by in all.
    pub(crate) fn set(&self, bytes: u64) {
        self.bytes.set(bytes);
    }

    /// Checks the rate, `passed` after the last check. Has the client been slower than `rate` for a
    /// whole window?
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
        rate.is_above(done, waited)
    }

    /// Has nothing come since the window began?
    pub(crate) fn is_silent(&self) -> bool {
        self.bytes.get() == self.from.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: MinRate = MinRate::new(100, Duration::from_secs(4));
    const SECOND: Duration = Duration::from_secs(1);

    fn add(meter: &RateMeter, bytes: u64) {
        meter.set(meter.bytes() + bytes);
    }

    #[test]
    fn a_client_is_too_slow_when_it_does_too_little_for_a_whole_window() {
        let meter = RateMeter::default();
        meter.wait(true);
        for second in 1..=12 {
            add(&meter, 100);
            assert!(!meter.is_too_slow(RATE, SECOND), "at {second} s");
        }
        // A burst counts only in its window.
        add(&meter, 10_000);
        for _ in 0..4 {
            assert!(!meter.is_too_slow(RATE, SECOND));
        }
        for _ in 0..3 {
            add(&meter, 99);
            assert!(!meter.is_too_slow(RATE, SECOND));
        }
        assert!(meter.is_too_slow(RATE, SECOND));
    }

    #[test]
    fn who_is_not_waited_for_may_be_slow() {
        let meter = RateMeter::default();
        for second in 0..100 {
            meter.wait(second % 4 != 0);
            assert!(!meter.is_too_slow(RATE, SECOND));
        }
    }
}
