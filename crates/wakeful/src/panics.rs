//! Panics of code that nobody awaits end where they began: callbacks, closures, and wakers, which may be anybody's.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Runs `f`; a panic in it is reported by the panic hook and goes no further. `false`: it panicked.
pub(crate) fn contain(f: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => true,
        Err(payload) => {
            // A payload may panic in its own drop.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            false
        }
    }
}

/// Wakes `waker`, which may be anybody's: a panic in it must not take the loop, nor those who wait beside it, along.
pub(crate) fn wake(waker: Waker) {
    contain(|| waker.wake());
}

/// The text of a panic, if it has one.
pub(crate) fn message(payload: &(dyn Any + Send)) -> Option<&str> {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}
