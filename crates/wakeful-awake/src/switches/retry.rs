//! When events are opened again after that has failed. This makes no system calls.
//!
//! An attempt may open some hundred events before the one that fails (no descriptor is left, or one
//! thread may not be observed). Without a pause, a watcher would repeat it at each of its checks.

use std::time::{Duration, Instant};

/// The first pause after a failure. Each further one is twice as long.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(300);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Retry {
    /// When the next attempt is due after a failure, and how long the pause before it is.
    due: Option<(Instant, Duration)>,
}

impl Retry {
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|(at, _)| at <= now)
    }

    pub(super) fn failed(&mut self, now: Instant) {
        let pause = self.due.map_or(FIRST, |(_, last)| (2 * last).min(LONGEST));
        self.due = Some((now + pause, pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_followed_by_longer_and_longer_pauses() {
        let (mut retry, mut now) = (Retry::default(), Instant::now());
        assert!(retry.is_due(now));
        for pause in [5, 10, 20, 40, 80, 160, 300, 300].map(Duration::from_secs) {
            retry.failed(now);
            now += pause;
            assert!(!retry.is_due(now - Duration::from_millis(1)), "{pause:?}");
            assert!(retry.is_due(now), "{pause:?}");
        }
    }
}
