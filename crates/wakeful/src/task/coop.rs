//! The cooperative budget: how many operations on ready sockets, timers and handles a task may
//! complete in one poll before it must let others run.
//!
//! Without it, a task whose socket always has data never returns to the loop. When the budget is spent the
//! next operation is pending although it is ready, and the task is woken at once: it goes to the back.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::{Context, Poll};

use super::local;

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// The loop starts a poll.
#[inline]
pub(crate) fn reset(budget: u32) {
    LEFT.set(budget);
}

/// A ration until the guard goes; then what was left before. Outside a loop's tasks nothing is rationed, and a task that
/// drives another loop keeps its own ration.
pub(crate) fn ration(budget: u32) -> Ration {
    Ration { outer: LEFT.replace(budget) }
}

/// See [`ration`].
pub(crate) struct Ration {
    outer: u32,
}

impl Drop for Ration {
    fn drop(&mut self) {
        LEFT.set(self.outer);
    }
}

/// Is nothing of the budget left?
pub(crate) fn is_spent() -> bool {
    LEFT.get() == 0
}

/// An operation begins. Pending: the budget is spent, and the task has been woken for its next turn.
#[inline]
pub(crate) fn poll_proceed(cx: &Context<'_>) -> Poll<()> {
    if is_spent() {
        local::count_forced_yield();
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(())
}

/// The operation was completed.
#[inline]
pub(crate) fn made_progress() {
    LEFT.set(LEFT.get().saturating_sub(1));
}

/// Counts as one operation of this task's budget, and yields if it is spent.
///
/// Call it in a loop that does much between its awaits, or that awaits only what is never pending (a
/// channel of another crate): it costs a few instructions, and keeps the loop's other tasks from waiting.
///
/// *Cancel-safe*: it has no effect but the count.
pub async fn consume_budget() {
    poll_fn(|cx| {
        let proceed = poll_proceed(cx);
        if proceed.is_ready() {
            made_progress();
        }
        proceed
    })
    .await;
}
