//! Whether a process has traffic: from how often its threads were switched away.
//!
//! This makes no system calls: the caller counts, and decides when. A process without traffic has
//! some regular activity, its housekeeping (redis 10 times a second, a JVM 32 times), which is no
//! traffic.

use std::time::Duration;

/// Traffic begins with this many switches a second above the housekeeping …
const ON: f64 = 50.0;
/// … and ends below this many.
const OFF: f64 = 25.0;
/// A rate is counted in a window of this length.
const WINDOW: Duration = Duration::from_millis(200);
/// A rate this many times above [`ON`] counts as traffic before its window is over. A lower one
/// counts after two windows.
const AT_ONCE: f64 = 10.0;
/// Housekeeping is assumed to be no more than this, per second.
const MOST_HOUSEKEEPING: f64 = 100.0;
/// The weight of the newest window in the estimate of the housekeeping.
const NEWEST: f64 = 0.2;

/// See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Traffic {
    state: State,
    /// When the window began, and the count at that time.
    begin: (Duration, u64),
    housekeeping: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// There is nothing to check until there is a switch.
    Silent,
    /// There was a switch. The value says whether the window before this one had traffic, too.
    Attentive {
        before: bool,
    },
    On,
}

/// What the caller should do until the next count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait until there is a switch.
    Armed,
    /// The same, but for no longer than this.
    ArmedFor(Duration),
    /// There is traffic: wait for a while, and count.
    Hold,
}

impl Traffic {
    pub(crate) fn new(now: Duration, count: u64) -> Self {
        Self { state: State::Silent, begin: (now, count), housekeeping: 0.0 }
    }

    /// Takes a count: there were `count` switches until `now`, both since a fixed moment. If the
    /// count is smaller than before (a thread has ended, and its switches with it), a new window
    /// begins.
    pub(crate) fn counted(&mut self, now: Duration, count: u64) -> Next {
        let elapsed = now.saturating_sub(self.begin.0);
        let Some(switches) = count.checked_sub(self.begin.1) else {
            self.begin = (now, count);
            return self.next(now);
        };
        let is_over = elapsed >= WINDOW;
        #[allow(clippy::cast_precision_loss)]
        let switches = switches as f64;
        let rate = switches / elapsed.max(WINDOW).as_secs_f64() - self.housekeeping;
        match self.state {
            State::Silent if switches == 0.0 => self.begin = (now, count),
            // The silence ends here. The next counts give a rate.
            State::Silent => {
                self.state = State::Attentive { before: false };
                self.begin = (now, count);
            }
            State::Attentive { before }
                if rate >= ON * AT_ONCE || (is_over && before && rate >= ON) =>
            {
                self.state = State::On;
                self.begin = (now, count);
            }
            State::On if is_over => {
                if rate < OFF {
                    self.state = State::Attentive { before: false };
                }
                self.begin = (now, count);
            }
            // A program that starts, or collects its garbage, is busy only for a moment.
            State::Attentive { before: false } if is_over && rate >= ON => {
                self.state = State::Attentive { before: true };
                self.begin = (now, count);
            }
            State::Attentive { .. } if is_over => {
                let rate = rate + self.housekeeping;
                let believed = self.housekeeping * (1.0 - NEWEST) + rate * NEWEST;
                self.housekeeping = believed.min(MOST_HOUSEKEEPING);
                self.state = match switches {
                    0.0 => State::Silent,
                    _ => State::Attentive { before: false },
                };
                self.begin = (now, count);
            }
            State::Attentive { .. } | State::On => {}
        }
        self.next(now)
    }

    fn next(&self, now: Duration) -> Next {
        match self.state {
            State::Silent => Next::Armed,
            State::Attentive { .. } => {
                let left = (self.begin.0 + WINDOW).saturating_sub(now);
                Next::ArmedFor(left.max(Duration::from_millis(1)))
            }
            State::On => Next::Hold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts every 10 ms, for switches that come evenly. Returns when traffic begins and ends.
    fn held(rate: impl Fn(f64) -> f64, seconds: f64) -> Vec<(f64, bool)> {
        let mut traffic = Traffic::new(Duration::ZERO, 0);
        let (mut changes, mut holds, mut total, mut now) = (Vec::new(), false, 0.0, 0.0);
        while now < seconds {
            now += 0.01;
            total += rate(now) * 0.01;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let next = traffic.counted(Duration::from_secs_f64(now), total as u64);
            if holds != (next == Next::Hold) {
                holds = !holds;
                changes.push((now, holds));
            }
        }
        changes
    }

    #[test]
    fn housekeeping_is_no_traffic() {
        for rate in [0.0, 1.0, 10.0, 32.0, 45.0] {
            assert_eq!(held(|_| rate, 60.0), [], "{rate}");
        }
    }

    #[test]
    fn traffic_is_above_the_housekeeping_of_the_process() {
        let changes =
            held(|now| if (10.0..20.0).contains(&now) { 32.0 + 70.0 } else { 32.0 }, 30.0);
        let [(begin, true), (end, false)] = changes[..] else { panic!("{changes:?}") };
        assert!((10.0..10.9).contains(&begin) && (20.0..20.5).contains(&end), "{changes:?}");
        assert_eq!(held(|now| if now < 10.0 { 32.0 } else { 70.0 }, 20.0), []);
    }

    #[test]
    fn much_traffic_is_seen_at_once_and_its_end_within_two_windows() {
        let changes = held(|now| if (1.0..2.0).contains(&now) { 10_000.0 } else { 0.0 }, 4.0);
        let [(begin, true), (end, false)] = changes[..] else { panic!("{changes:?}") };
        assert!((1.0..1.05).contains(&begin) && (2.0..2.45).contains(&end), "{changes:?}");
    }

    #[test]
    fn the_start_of_a_program_is_no_traffic() {
        for (length, rate) in [(0.1, 400.0), (0.2, 200.0)] {
            let start = |now| if (1.0..1.0 + length).contains(&now) { rate } else { 3.0 };
            assert_eq!(held(start, 10.0), [], "{length} s");
        }
    }

    #[test]
    fn between_both_bounds_it_stays_as_it_is() {
        assert_eq!(held(|_| 40.0, 10.0), []);
        let changes = held(|now| if now < 1.0 { 200.0 } else { 40.0 }, 10.0);
        assert!(matches!(changes[..], [(_, true)]), "{changes:?}");
    }

    #[test]
    fn a_silence_asks_for_nothing_until_something_is_switched() {
        let mut traffic = Traffic::new(Duration::ZERO, 7);
        assert_eq!(traffic.counted(Duration::from_secs(1), 7), Next::Armed);
        let Next::ArmedFor(_) = traffic.counted(Duration::from_secs(90), 20) else { panic!() };
        // However long the silence was, 13 switches are no rate.
        let Next::ArmedFor(_) = traffic.counted(Duration::from_millis(90_100), 33) else {
            panic!()
        };
        traffic.counted(Duration::from_millis(90_300), 33);
        assert_eq!(traffic.counted(Duration::from_secs(91), 33), Next::Armed);
    }

    #[test]
    fn a_count_that_falls_is_a_new_beginning() {
        let mut traffic = Traffic::new(Duration::ZERO, 1_000);
        traffic.counted(Duration::from_millis(100), 1_010);
        assert!(matches!(traffic.counted(Duration::from_millis(150), 5), Next::ArmedFor(_)));
        assert!(matches!(traffic.counted(Duration::from_millis(360), 9), Next::ArmedFor(_)));
    }
}
