//! A panic in the user's service affects only its own request, and ends here: the request is
//! answered 500, and the connection's other requests continue.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::foreign_code::contain_payload;

/// Calls `f`. `None`: it panicked.
///
/// Values that `f` owns are copied several times on their way through `catch_unwind`. So `f` should
/// take a large value by reference.
#[inline(always)]
pub(super) fn keep<R>(f: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(f)).map_err(contain_payload).ok()
}
