//! The server that a loop works for, and whether it drains: for handlers and layers, at no cost for those that do not ask.
//!
//! A loop of a server's group belongs to that server alone, so a thread-local is enough: nothing has to be put into each request. A loop
//! knows from its first connection on.

use std::cell::RefCell;

use wakeful::accept::Draining;

thread_local! {
    static HERE: RefCell<Option<Draining>> = const { RefCell::new(None) };
}

/// When the server of this loop begins to drain. A stream that would go on (events, a gRPC stream, a WebSocket) selects on
/// [`started`](Draining::started) and comes to its end.
///
/// ```
/// # async fn handler() {
/// let Some(draining) = wakeful_http::draining() else { return };
/// draining.started().await;
/// # }
/// ```
///
/// `None` on a thread that serves no connection of a [`Server`](crate::Server).
#[must_use]
pub fn draining() -> Option<Draining> {
    HERE.with_borrow(Clone::clone)
}

/// This thread's loop serves connections that are told by `draining`.
pub(crate) fn enter(draining: &Draining) {
    HERE.with_borrow_mut(|here| {
        if here.is_none() {
            *here = Some(draining.clone());
        }
    });
}
