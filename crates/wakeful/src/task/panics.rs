//! Panics of code that nobody awaits end where they began.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// The text of a panic, if it has one.
pub(crate) fn message(payload: &(dyn Any + Send)) -> Option<&str> {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}
