//! What a loop tells the process that watches this one, beside what it tells its group.

use std::rc::Rc;

use crate::balance::board::Seat;
use crate::event_loop::SleepObserver;
use crate::heartbeat::Heartbeat;

/// Of a loop that is alone in its group.
pub(super) struct Alone(pub(super) Heartbeat);

impl SleepObserver for Alone {
    fn before_sleep(&self) {
        self.0.sleeps();
    }

    fn after_sleep(&self) {
        self.0.wakes();
    }

    /// What it drops may block it.
    fn at_end(&self) {}
}

/// Of a loop that has others beside it.
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

    /// What it drops may block it.
    fn at_end(&self) {
        self.seat.before_sleep();
    }
}
