//! Somebody who is told when the loop goes to sleep and when it is back: a loop's group, which has
//! another loop woken when one does not come back from a turn. A spin of
//! [`IdlePolicy::Spin`](crate::IdlePolicy::Spin), which may last for ever, counts as sleep; the one
//! that `Adaptive` puts in front of a sleep does not: it ends within its window.

/// See the [module](self). Called on the loop's thread, with nothing borrowed.
pub(crate) trait SleepObserver {
    /// The loop asks the kernel next, and may sleep, or spin for ever.
    fn before_sleep(&self);

    /// It is awake again.
    fn after_sleep(&self);

    /// The loop ends: it takes no turn any more, but still drops what it has.
    fn at_end(&self) {
        self.before_sleep();
    }
}
