//! The budget of a task that Tokio polls instead of a loop: Tokio's own budget.
//!
//! A Tokio task may use the loop's sockets. Each operation on them spends Tokio's budget, as an
//! operation on a Tokio socket does, so a task whose socket always has data lets others run.
//! Outside of Tokio's tasks nothing is rationed.

use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Waker};

use ::tokio::task::coop::{consume_budget, has_budget_remaining};

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
