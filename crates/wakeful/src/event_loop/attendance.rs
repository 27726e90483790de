//! Somebody who is told when the loop goes to sleep and when it is back: a loop's group, which has another loop woken when one does not come back from a
//! turn. A spin of [`IdlePolicy::Spin`](crate::IdlePolicy::Spin), which may last for ever, counts as sleep; the one that `Adaptive` puts in front of a sleep does not: it ends within its window.

use std::io;

use super::Inner;
use crate::driver::epoll::Timer;

/// See the [module](self). Called on the loop's thread, with nothing borrowed.
pub(crate) trait Attendance {
    /// The loop asks the kernel next, and may sleep, or spin for ever.
    fn leaves(&self);

    /// It is awake again.
    fn is_back(&self);
}

impl Inner {
    /// Has `attendance` told from now on, and the loop woken by `alarm` when it sleeps.
    pub(super) fn attend(&self, attendance: Box<dyn Attendance>, alarm: &Timer) -> io::Result<()> {
        self.driver.watch_alarm(alarm)?;
        // It may take turns for long before it first sleeps.
        attendance.is_back();
        let fresh = self.attendance.set(attendance).is_ok();
        debug_assert!(fresh, "a loop is of one group");
        Ok(())
    }
}
