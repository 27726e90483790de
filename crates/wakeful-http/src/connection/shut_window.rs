//! For how long a client has given responses no room, and how much of them it took in that time. It
//! may be the room of its socket or, with HTTP/2, of a window.
//!
//! Many clients make room only when they have used half of a large window. A player that takes
//! 100 KB/s from a window of 6 MiB does so twice a minute, and is as fast as it has to be. A kernel
//! whose buffer is full makes room only when a sixteenth of it is free. So who took much at once
//! may take nothing for some time, then and later.

use std::time::Duration;

use crate::limits::MinRate;

/// A client that took this many bytes may take nothing for one second more.
const A_SECOND: u64 = 64 * 1024;
/// No client may take nothing for longer than this, beyond the window of the rate.
const LONGEST: u64 = 60;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct ShutWindow {
    period: Option<Period>,
    /// How much had been sent when the last period began.
    counted: u64,
    /// How many seconds longer than the rate's window a period is.
    more: u64,
}

/// A time in which each check has seen no room.
#[derive(Debug)]
struct Period {
    waited: Duration,
    longest: Duration,
    /// How much had been sent when it began.
    before: u64,
}

impl ShutWindow {
    /// Notes that there is room, or that nothing waits for it.
    pub(super) fn is_open(&mut self) {
        self.period = None;
    }

    /// Notes that there is no room, after `sent` bytes in all, `passed` after the last check. Was
    /// the client slower than `rate` for a whole period in which no check has seen room?
    pub(super) fn is_too_slow(&mut self, rate: MinRate, passed: Duration, sent: u64) -> bool {
        let Some(period) = &mut self.period else {
            self.begin(rate, sent);
            return false;
        };
        period.waited += passed;
        if period.waited < period.longest {
            return false;
        }
        let is_too_slow = rate.is_above(sent.saturating_sub(period.before), period.waited);
        self.begin(rate, sent);
        is_too_slow
    }

    fn begin(&mut self, rate: MinRate, sent: u64) {
        // It is less when another number is taken, because the stream is over.
        let more = sent.saturating_sub(self.counted) / A_SECOND;
        self.more = self.more.max(more.min(LONGEST));
        let longest = rate.window.saturating_add(Duration::from_secs(self.more));
        self.period = Some(Period { waited: Duration::ZERO, longest, before: sent });
        self.counted = sent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: MinRate = MinRate::new(100, Duration::from_secs(4));
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn who_gives_too_little_room_for_a_whole_window_is_too_slow() {
        let (mut shut, mut sent) = (ShutWindow::default(), 1000);
        let mut after_a_second = |bytes| {
            sent += bytes;
            shut.is_too_slow(RATE, SECOND, sent)
        };
        for second in 0..13 {
            assert!(!after_a_second(100), "at {second} s");
        }
        // A new period has begun.
        for _ in 0..3 {
            assert!(!after_a_second(99));
        }
        assert!(after_a_second(99));
    }

    #[test]
    fn room_does_not_count() {
        let mut shut = ShutWindow::default();
        for second in 0..100 {
            assert!(!shut.is_too_slow(RATE, SECOND, 0));
            if second % 4 == 3 {
                shut.is_open();
            }
        }
    }

    /// After how many of 600 seconds a client is too slow that takes `bytes` every `pause` seconds.
    fn is_too_slow_after(bytes: u64, pause: u64) -> Option<u64> {
        let mut shut = ShutWindow::default();
        (0..600).find(|second| shut.is_too_slow(RATE, SECOND, (1 + second / pause) * bytes))
    }

    #[test]
    fn who_takes_much_at_once_may_pause_and_who_takes_nothing_more_may_not() {
        const LUMP: u64 = 3 << 20;
        assert_eq!(is_too_slow_after(LUMP, 30), None);
        assert_eq!(is_too_slow_after(LUMP, 600), Some(4 + LUMP / A_SECOND));
        assert_eq!(is_too_slow_after(1 << 40, 600), Some(4 + LONGEST));
        assert_eq!(is_too_slow_after(A_SECOND - 1, 600), Some(4));
    }

    /// As from a large buffer that is full, a sixteenth of it at a time.
    #[test]
    fn who_took_much_at_first_may_pause_as_long_later_but_must_take_as_much_as_the_rate() {
        const FIRST: u64 = 60 * A_SECOND;
        for (each_minute, is_cut) in [(64 * 100, false), (59 * 100, true)] {
            let mut shut = ShutWindow::default();
            let is_too_slow = (0..600)
                .any(|second| shut.is_too_slow(RATE, SECOND, FIRST + second / 60 * each_minute));
            assert_eq!(is_too_slow, is_cut, "{each_minute}");
        }
    }
}
