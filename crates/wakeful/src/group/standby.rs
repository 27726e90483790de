//! When the active loops of a group do not come back from their turns, another one is woken to stand in for them.
//!
//! Connections are given to active loops only, and at light load that is one. If its handler blocks, or computes for long, it takes no more of them; and the others, which could, sleep, and nobody is
//! there who would wake them. So an active loop that is awake keeps pushing an alarm before itself. It rings when none has done so for [`PATIENCE`], and wakes one of the
//! loops that sleep; that one looks who is to blame.
//!
//! Pushing it is a system call every 10 ms, setting it after a sleep is another one. A loop that sleeps less than a hundred times a second stops it before, so that nobody is woken in vain; one that sleeps
//! more often leaves that, since it is back before the alarm rings.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::driver::epoll::Timer;

/// How long a turn of the last active loop that is awake may take until another loop stands in. More than a loop says nothing while it spins as long as a policy may ask for (16.7 ms), since
/// it said something up to 10 ms before.
pub(super) const PATIENCE: Duration = Duration::from_millis(30);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Standby {
    alarm: Timer,
    /// When it rings, on the board's clock; 0: nobody waits for it.
    due: AtomicU64,
}

impl Standby {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { alarm: Timer::new()?, due: AtomicU64::new(0) })
    }

    pub(super) fn alarm(&self) -> &Timer {
        &self.alarm
    }

    /// Has it been set, and not yet rung?
    pub(super) fn is_set(&self, now: u64) -> bool {
        self.due.load(Ordering::SeqCst) > now
    }

    /// Has it rung, and nobody looked?
    pub(super) fn has_rung(&self, now: u64) -> bool {
        let due = self.due.load(Ordering::SeqCst);
        due != 0 && due <= now
    }

    /// Rings [`PATIENCE`] from now.
    pub(super) fn push(&self, now: u64) {
        self.due.store(now + nanoseconds(PATIENCE), Ordering::SeqCst);
        self.set(Some(PATIENCE));
    }

    /// Does not ring.
    pub(super) fn stop(&self) {
        self.due.store(0, Ordering::SeqCst);
        self.set(None);
    }

    /// Whoever looked found nothing to do: it is set again by the next loop that wakes.
    pub(super) fn silence(&self, now: u64) {
        let due = self.due.load(Ordering::SeqCst);
        if due <= now {
            // Unless somebody has set it meanwhile.
            let _ = self.due.compare_exchange(due, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    fn set(&self, after: Option<Duration>) {
        if let Err(error) = self.alarm.arm(after) {
            tracing::debug!(%error, "the alarm of a group cannot be set");
        }
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
