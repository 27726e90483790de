//! Whether the handler that runs on this thread runs for a further request of its connection:
//! another one that came before is still in flight.

use std::cell::Cell;

thread_local! {
    static IS_FURTHER: Cell<bool> = const { Cell::new(false) };
}

/// Outside of a server's handlers, as in a task of its own, no request is a further one.
pub(crate) fn is_further_request() -> bool {
    IS_FURTHER.get()
}

/// Sets this for the code that runs next on this thread, and returns what was set before.
#[inline]
pub(crate) fn replace(is_further: bool) -> bool {
    IS_FURTHER.replace(is_further)
}
