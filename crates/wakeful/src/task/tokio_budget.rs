//! The budget of a task that Tokio polls, and not a loop: Tokio's own.
//!
//! A task of Tokio may use the loop's sockets. If one of them always has data, it spends Tokio's
//! budget as a socket of Tokio does, and the task lets others run. Outside of Tokio's tasks nothing
//! is rationed.

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

/// An operation begins. Is it to wait for the task's next turn? At most `most` operations of one
/// poll are, one after the other, and the next one is not: a `block_on` of another library inside a
/// task polls again at once, and never returns to Tokio.
pub(super) fn is_put_off(most: u64) -> bool {
    if !is_spent() {
        BEGUN.set(0);
        return false;
    }
    let begun = BEGUN.get();
    BEGUN.set(begun.wrapping_add(1));
    begun % (most + 1) < most
}

/// The operation was completed.
pub(super) fn made_progress() {
    // Whether any is left, is asked before.
    let _ = pin!(consume_budget()).poll(&mut Context::from_waker(Waker::noop()));
}
