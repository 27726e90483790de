//! The price of held time, and how long a hold is worth it: [`HoldGovernor`] on this machine.

use std::time::Duration;

use crate::idle::governor::HoldGovernor;
use crate::idle::survey::survey;
use crate::sys::fork_check::Process;

/// A wait that is shorter than this, in nanoseconds, did not sleep, because what ended it was there
/// before.
const NO_SLEEP: u64 = 2_000;

/// The price of one loop's holds. See the [module](self). Times are nanoseconds on the loop's
/// clock.
#[derive(Debug)]
pub(super) struct Price {
    governor: HoldGovernor,
    process: Process,
    /// When the loop first slept after the last event.
    since: Option<u64>,
    /// Whether the cost of a wake on this machine has been measured.
    is_known: bool,
}

impl Price {
    pub(super) fn new(silence: Duration, cost: f64, process: Process) -> Self {
        let silence = u64::try_from(silence.as_nanos()).unwrap_or(u64::MAX);
        let governor = HoldGovernor::new(silence, cost);
        Self { governor, process, since: None, is_known: false }
    }

    /// Called when the loop is about to sleep, at `now`. Returns how long a hold of its CPU is
    /// worth its price, if at all.
    pub(super) fn limit_from(&mut self, now: u64) -> Option<Duration> {
        self.since.get_or_insert(now);
        match self.governor.limit() {
            0 => {
                // Until a wake has been measured, the worth of a hold would be a guess.
                self.knows_wakes();
                None
            }
            limit => Some(Duration::from_nanos(limit)),
        }
    }

    /// Called when an event has ended a sleep. (A timer that ends a sleep does not end a gap
    /// between events.)
    pub(super) fn event(&mut self, now: u64) {
        let gap = self.since.take().map_or(0, |since| now.saturating_sub(since));
        if gap >= NO_SLEEP {
            self.governor.event_after(gap);
        }
    }

    /// Has the cost of a wake on this machine been measured? The first call starts the measurement,
    /// so nothing is held before its end.
    pub(super) fn knows_wakes(&mut self) -> bool {
        if !self.is_known
            && let Some(found) = survey(self.process.stamp())
        {
            let max_window = found.max_window.as_nanos();
            self.governor.set_max_window(u64::try_from(max_window).unwrap_or(u64::MAX));
            self.is_known = true;
        }
        self.is_known
    }
}
