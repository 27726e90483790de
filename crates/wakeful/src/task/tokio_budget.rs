//! The budget of a task that Tokio polls instead of a loop: Tokio's own budget.
//!
//! A Tokio task may use the loop's sockets. Each operation on them spends Tokio's budget, as an
//! operation on a Tokio socket does, so a task whose socket always has data lets others run.
//! Outside of Tokio's tasks nothing is rationed, nor in a loop that a task of Tokio runs.

use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use ::tokio::task::coop::{consume_budget, has_budget_remaining, unconstrained};

thread_local! {
    /// How many operations have begun since the budget was spent.
    static BEGUN: Cell<u64> = const { Cell::new(0) };
}

pub(super) fn is_spent() -> bool {
    !has_budget_remaining()
}

/// Returns whether the operation that begins must wait for the task's next turn. After `most`
/// operations in a row of one poll were put off, the next one is not. Otherwise a `block_on` of
/// another library inside a task, which polls again at once, would never return to Tokio.
pub(super) fn is_put_off(most: u64) -> bool {
    if !is_spent() {
        BEGUN.set(0);
        return false;
    }
    let begun = BEGUN.get();
    BEGUN.set(begun.wrapping_add(1));
    begun % (most + 1) < most
}

/// Called when the operation has completed.
pub(super) fn made_progress() {
    // The caller has checked `is_spent` before.
    let _ = pin!(consume_budget()).poll(&mut Context::from_waker(Waker::noop()));
}

/// Calls `run`, which runs a loop that has no guest, without Tokio's budget.
///
/// If a task of Tokio calls this, all of the run is within one poll. Tokio would let 128 operations
/// succeed, and would wake what waits then only after the run.
pub(crate) fn without_budget<R>(run: impl FnOnce() -> R) -> R {
    let run = pin!(unconstrained(async { run() }));
    match run.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(returned) => returned,
        Poll::Pending => unreachable!("it awaits nothing"),
    }
}
