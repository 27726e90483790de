//! The end of a loop.

use std::rc::Rc;

use super::current;
use super::inner::Inner;
use crate::sys::panics;

impl Inner {
    /// Ends the loop, on its thread. Futures, closures and callbacks are dropped here, even if
    /// other code still holds wakers or handles. In a forked child they are leaked, and sockets are
    /// closed. No waker of another executor is called or dropped there, because it may take a lock
    /// that a thread of the parent held at the fork.
    ///
    /// A destructor that runs here may fork. Then the child, too, runs the rest of this function,
    /// where it leaks what is left.
    pub(super) fn end(self: &Rc<Self>) {
        let process = *self.handle.process();
        let entered = current::enter(self);
        self.callbacks.begin_end();
        self.local.end(process);
        self.callbacks.end(process);
        self.pulse.end(process);
        if !process.is_forked()
            && let Some(sleep_observer) = self.sleep_observer.get()
        {
            sleep_observer.at_end();
        }
        // The drop of a late callback may spawn, and that of a late future may add a callback.
        let drop_late =
            || while self.local.drop_late(process) || self.callbacks.drop_late(process) {};
        drop_late();
        // Tasks and callbacks may use the loop's values until here.
        self.values.end(process);
        drop_late();
        let wakers = self.timers.borrow_mut().clear();
        drop(entered);
        // This loop's futures are gone, so the remaining waiters belong to other executors. They
        // are woken after the loop was left, because a waker that polls at once must not set a
        // timer here.
        self.driver.end();
        process.each_unless_forked(wakers, panics::wake);
    }
}
