//! The end of a loop.

use std::mem;
use std::rc::Rc;

use super::current;
use super::inner::Inner;
use crate::sys::panics;

impl Inner {
    /// Ends the loop, on its thread. Futures, closures and callbacks are dropped here, even if
    /// other code still holds wakers or handles. In a forked child they are leaked, and sockets are
    /// closed. No waker of another executor is called or dropped there, because it may take a lock
    /// that a thread of the parent held at the fork.
    pub(super) fn end(self: &Rc<Self>) {
        let is_inherited = self.handle.process().is_forked();
        let entered = current::enter(self);
        self.callbacks.begin_end();
        self.local.end(is_inherited);
        self.callbacks.end(is_inherited);
        self.pulse.end(is_inherited);
        if !is_inherited && let Some(sleep_observer) = self.sleep_observer.get() {
            sleep_observer.at_end();
        }
        // The drop of a late callback may spawn, and that of a late future may add a callback.
        let drop_late = || while self.local.drop_late() || self.callbacks.drop_late() {};
        drop_late();
        // Tasks and callbacks may use the loop's values until here.
        self.values.end(is_inherited);
        drop_late();
        let wakers = self.timers.borrow_mut().clear();
        drop(entered);
        // This loop's futures are gone, so the remaining waiters belong to other executors. They
        // are woken after the loop was left, because a waker that polls at once must not set a
        // timer here.
        self.driver.end();
        if is_inherited {
            return mem::forget(wakers);
        }
        wakers.into_iter().for_each(panics::wake);
    }
}
