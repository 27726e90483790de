//! A panic in the user's service affects only its own request, and ends here: the request is
//! answered 500, and the connection's other requests continue.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::foreign_code::contain_payload;

/// Calls `f`. `None`: it panicked.
#[inline(always)]
pub(super) fn keep<R>(f: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(f)).map_err(contain_payload).ok()
}

/// Like [`keep`], for what may be large: `R` is not moved once more for it.
#[inline(always)]
pub(super) fn keep_or<R>(f: impl FnOnce() -> R, panicked: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        contain_payload(payload);
        panicked()
    })
}
