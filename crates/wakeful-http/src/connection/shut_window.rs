//! With HTTP/2: for how long a client has given a response no room of its own, and how much of it
//! was sent in that time.

use std::time::{Duration, Instant};

use crate::limits::MinRate;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct ShutWindow {
    /// Since when each check has seen it, and how much had been sent by then.
    since: Option<(Instant, u64)>,
}

impl ShutWindow {
    /// Notes that there is room, or that nothing waits for it.
    pub(super) fn is_open(&mut self) {
        self.since = None;
    }

    /// Does not count the time in which the process was stopped.
    pub(super) fn spare(&mut self, stopped: Duration) {
        if let Some((since, _)) = &mut self.since {
            *since += stopped;
        }
    }

    /// Notes that there is no room, after `sent` bytes in all. Was the client slower than `rate`
    /// for a whole window in which no check has seen room?
    pub(super) fn is_too_slow(&mut self, rate: MinRate, now: Instant, sent: u64) -> bool {
        let (since, before) = *self.since.get_or_insert((now, sent));
        let waited = now.saturating_duration_since(since);
        if waited < rate.window {
            return false;
        }
        self.since = Some((now, sent));
        rate.is_above(sent - before, waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: MinRate = MinRate::new(100, Duration::from_secs(4));
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn who_gives_too_little_room_for_a_whole_window_is_too_slow() {
        let (mut shut, mut now, mut sent) = (ShutWindow::default(), Instant::now(), 1000);
        let mut after = |shut: &mut ShutWindow, bytes| {
            (now, sent) = (now + SECOND, sent + bytes);
            shut.is_too_slow(RATE, now, sent)
        };
        for second in 0..13 {
            assert!(!after(&mut shut, 100), "at {second} s");
        }
        // A new window has begun.
        for _ in 0..3 {
            assert!(!after(&mut shut, 99));
        }
        assert!(after(&mut shut, 99));
    }

    #[test]
    fn room_and_pauses_do_not_count() {
        let (mut shut, start) = (ShutWindow::default(), Instant::now());
        for second in 0..100 {
            assert!(!shut.is_too_slow(RATE, start + second * SECOND, 0));
            if second % 4 == 3 {
                shut.is_open();
            }
        }
        let mut is_too_slow = |second| shut.is_too_slow(RATE, start + second * SECOND, 0);
        assert!(!is_too_slow(200));
        assert!(!is_too_slow(203));
        shut.spare(50 * SECOND);
        let mut is_too_slow = |second| shut.is_too_slow(RATE, start + second * SECOND, 0);
        assert!(!is_too_slow(253));
        assert!(is_too_slow(254));
    }
}
