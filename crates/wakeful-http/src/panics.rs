//! Panics of wakers and of log subscribers end where they began. A waker may be another executor's, and others wait beside it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes `waker`, and contains a panic in it.
pub(crate) fn wake(waker: Waker) {
    contain(|| waker.wake());
}

/// Drops `waker`, and contains a panic in its destructor.
pub(crate) fn discard(waker: Option<Waker>) {
    contain(|| drop(waker));
}

fn contain(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        swallow(payload);
    }
}

#[cold]
fn swallow(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // The destructor of this one may panic with yet another one, without end.
        std::mem::forget(another);
    }
}

/// Logs at a level of `tracing`, and contains a panic in the subscriber, which is the program's code.
macro_rules! log {
    ($level:ident, $($event:tt)+) => {
        ::wakeful::log::contained(|| ::tracing::$level!($($event)+))
    };
}
pub(crate) use log;
