//! A panic in the user's service, before its future is polled.
//!
//! HTTP/2 calls the service in the connection's task, where a panic would end all the other
//! requests: it is kept for the request's own future, and goes on there. With HTTP/1 there is no
//! other request. (What a future does when it is polled is its task's own: the task contains it.)

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::connection::Protocol;

/// Calls `f`, and keeps its panic.
#[inline(always)]
pub(super) fn keep<R>(protocol: Protocol, f: impl FnOnce() -> R) -> thread::Result<R> {
    match protocol {
        Protocol::Http1 => Ok(f()),
        Protocol::Http2 => catch_unwind(AssertUnwindSafe(f)),
    }
}

/// As [`keep`], for what may be large: `R` is not moved once more for it.
#[inline(always)]
pub(super) fn keep_as<R>(
    protocol: Protocol,
    f: impl FnOnce() -> R,
    panicked: impl FnOnce(Box<dyn Any + Send>) -> R,
) -> R {
    match protocol {
        Protocol::Http1 => f(),
        Protocol::Http2 => catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(panicked),
    }
}
