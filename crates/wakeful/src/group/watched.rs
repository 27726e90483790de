//! What a loop reports to the process that watches its process, in addition to what it reports to
//! its group.

use std::rc::Rc;

use crate::balance::board::Seat;
use crate::event_loop::SleepObserver;
use crate::heartbeat::Heartbeat;

/// Reports for a loop that is alone in its group.
pub(super) struct Alone(pub(super) Heartbeat);

impl SleepObserver for Alone {
    fn before_sleep(&self) {
        self.0.sleeps();
    }

    fn after_sleep(&self) {
        self.0.wakes();
    }

    /// This does nothing, because what the loop still drops may block it, and that should be
    /// noticed.
    fn at_end(&self) {}
}

/// Reports for a loop in a group of several.
pub(super) struct InGroup {
    pub(super) heartbeat: Heartbeat,
    pub(super) seat: Rc<Seat>,
}

impl SleepObserver for InGroup {
    fn before_sleep(&self) {
        self.heartbeat.sleeps();
        self.seat.before_sleep();
    }

    fn after_sleep(&self) {
        self.heartbeat.wakes();
        self.seat.after_sleep();
    }

    /// Only the seat is told. What the loop still drops may block it, and the watchdog should
    /// notice that.
    fn at_end(&self) {
        self.seat.before_sleep();
    }
}
