//! An observer that learns when the loop goes to sleep and when it is awake again. It is the loop's
//! group, which wakes another loop when this one is stuck in a turn. A spin of
//! [`IdlePolicy::Spin`](crate::IdlePolicy::Spin), which may last for ever, counts as sleep. The
//! spin that `Adaptive` makes before a sleep does not, because it ends within its window.

/// Learns of sleeps. See the [module](self). It is called on the loop's thread, with nothing
/// borrowed.
pub(crate) trait SleepObserver {
    /// The loop asks the kernel next. It may sleep, or spin for ever.
    fn before_sleep(&self);

    /// The loop is awake again.
    fn after_sleep(&self);

    /// The loop ends. It takes no more turns, but still drops what it has.
    fn at_end(&self) {
        self.before_sleep();
    }
}
