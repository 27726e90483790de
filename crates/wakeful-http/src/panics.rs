//! Panics of wakers and of log subscribers end where they began. A waker may be another executor's, and others wait beside it.

use std::task::Waker;

/// Runs `f`, and contains a panic in it, which the loop of this thread counts.
pub(crate) use wakeful::log::contained as contain;

/// Wakes `waker`, and contains a panic in it.
pub(crate) fn wake(waker: Waker) {
    contain(|| waker.wake());
}

/// Drops `waker`, and contains a panic in its destructor.
pub(crate) fn discard(waker: Option<Waker>) {
    contain(|| drop(waker));
}

/// Logs at a level of `tracing`, and contains a panic in the subscriber, which is the program's code.
macro_rules! log {
    ($level:ident, $($event:tt)+) => {
        $crate::panics::contain(|| ::tracing::$level!($($event)+))
    };
}
pub(crate) use log;
