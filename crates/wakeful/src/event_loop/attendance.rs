//! Somebody who is told when the loop goes to sleep and when it is back: a loop's group, which has another loop woken when one does not come back from a
//! turn. A spin of [`IdlePolicy::Spin`](crate::IdlePolicy::Spin), which may last for ever, counts as sleep; the one that `Adaptive` puts in front of a sleep does not: it ends within its window.

/// See the [module](self). Called on the loop's thread, with nothing borrowed.
pub(crate) trait Attendance {
    /// The loop asks the kernel next, and may sleep, or spin for ever.
    fn leaves(&self);

    /// It is awake again.
    fn is_back(&self);
}
