//! The cooperative budget: how many operations on ready sockets, timers and handles a task may
//! complete in one poll before it must let others run.
//!
//! Without it, a task whose socket always has data never returns to the loop. When the budget is
//! spent, the next operation is pending although it is ready, and the task is woken at once: it
//! goes to the end of the ready queue.
//!
//! A sleep that is over is postponed at most once (`time::sleep`). Otherwise it would never
//! complete in a task that spends its budget on something else in every poll.
//!
//! A `block_on` of another library inside a task polls again at once, and never returns to the
//! loop. So after [`MOST_FORCED_YIELDS`] operations of a poll were postponed, the next one is not,
//! and the `block_on` completes in the end. The poll gets no new budget, so that other code also
//! returns soon: many futures in one task, or a codec that continues with what it has read while
//! its write is pending.
//!
//! A task of Tokio has Tokio's budget, also for operations of the loop: see `tokio_budget`.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::{Context, Poll};

use super::local;
#[cfg(feature = "tokio")]
use super::tokio_budget;

/// How many operations in a row one poll puts off before one may complete. Together with that one
/// they are a prime number. So if a few futures are polled in turn, each of them is at some time
/// the one that completes.
const MOST_FORCED_YIELDS: u64 = 36;

/// No loop is polling, so either nothing is rationed, or Tokio rations. The lower half is 0, like
/// that of a spent budget, so that a poll by a loop needs no further check.
const NOT_RATIONED: u64 = u64::MAX << 32;

/// No budget applies, not even Tokio's. [`made_progress`] does not change it.
const UNCONSTRAINED: u64 = u64::MAX;

thread_local! {
    /// The lower half is the number of operations that are left. The upper half is how many
    /// operations of this poll were put off since the last one completed. The value may also be
    /// [`NOT_RATIONED`] or [`UNCONSTRAINED`].
    static LEFT: Cell<u64> = const { Cell::new(NOT_RATIONED) };
}

/// Sets the budget when the loop starts a poll.
#[inline]
pub(crate) fn reset(budget: u32) {
    LEFT.set(budget.into());
}

/// Sets a ration until the guard is dropped, which restores what was left before. A task that
/// drives another loop keeps its own ration.
pub(crate) fn ration(budget: u32) -> Ration {
    Ration { left: LEFT.replace(budget.into()) }
}

/// The guard of [`ration`]. It keeps what was left of the outer ration.
pub(crate) struct Ration {
    left: u64,
}

impl Drop for Ration {
    fn drop(&mut self) {
        LEFT.set(self.left);
    }
}

/// Rations nothing until the guard is dropped, which restores what was left before.
pub(super) fn unconstrained() -> Unconstrained {
    Unconstrained { left: LEFT.replace(UNCONSTRAINED) }
}

/// The guard of [`unconstrained`].
pub(super) struct Unconstrained {
    left: u64,
}

impl Drop for Unconstrained {
    fn drop(&mut self) {
        LEFT.set(self.left);
    }
}

/// Is the budget used up?
pub(crate) fn is_spent() -> bool {
    match LEFT.get() {
        NOT_RATIONED => is_spent_outside(),
        left => left as u32 == 0,
    }
}

/// The answer of [`is_spent`] where no loop polls.
#[cfg(feature = "tokio")]
fn is_spent_outside() -> bool {
    tokio_budget::is_spent()
}

#[cfg(not(feature = "tokio"))]
fn is_spent_outside() -> bool {
    false
}

#[cfg(feature = "tokio")]
pub(crate) use super::tokio_budget::without_budget as without_tokio_s_budget;

/// Tokio is not known here.
#[cfg(not(feature = "tokio"))]
pub(crate) fn without_tokio_s_budget<R>(run: impl FnOnce() -> R) -> R {
    run()
}

/// Returns whether the running task may complete another operation in this poll.
///
/// Call it in a hand-written future, before each piece of its work. If it returns `false`, the
/// future should wake itself and return pending, so that others can run. It returns `true` if no
/// budget applies. In a task of Tokio (feature `tokio`) Tokio's budget applies.
///
/// ```
/// use wakeful::task::{consume_budget, has_budget_remaining};
///
/// wakeful::block_on(async {
///     let mut steps = 0;
///     while has_budget_remaining() {
///         steps += 1;
///         consume_budget().await;
///     }
///     assert_eq!(steps, 128, "the default of `EventLoopBuilder::cooperative_budget`");
/// });
/// ```
#[must_use]
pub fn has_budget_remaining() -> bool {
    !is_spent()
}

/// Called when an operation begins. Pending: the budget is spent, and the task has been woken for
/// its next turn.
#[inline]
pub(crate) fn poll_proceed(cx: &Context<'_>) -> Poll<()> {
    if LEFT.get() as u32 == 0 && is_put_off() {
        local::count_forced_yield();
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(())
}

#[cold]
fn is_put_off() -> bool {
    if LEFT.get() == NOT_RATIONED {
        #[cfg(feature = "tokio")]
        return tokio_budget::is_put_off(MOST_FORCED_YIELDS);
        #[cfg(not(feature = "tokio"))]
        return false;
    }
    let put_off = LEFT.get() >> 32;
    if put_off >= MOST_FORCED_YIELDS {
        LEFT.set(1);
        return false;
    }
    LEFT.set((put_off + 1) << 32);
    true
}

/// Called when the operation has completed.
#[inline]
pub(crate) fn made_progress() {
    let left = LEFT.get();
    // From 1 to `u32::MAX` the value is a ration that is not spent.
    if left.wrapping_sub(1) < u32::MAX.into() {
        LEFT.set(left - 1);
    }
    #[cfg(feature = "tokio")]
    if left == NOT_RATIONED {
        tokio_budget::made_progress();
    }
}

/// Spends one operation of this task's budget, and yields if the budget is spent.
///
/// Call it in a loop that does much work between its awaits, or whose awaits are never pending. It
/// costs a few instructions, and lets the event loop's other tasks run. To await another library's
/// future or stream, such as a channel, use [`budgeted`](super::budgeted) and
/// [`budgeted_stream`](super::budgeted_stream).
///
/// # Cancel safety
/// Cancel-safe: it only counts.
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

/// Returns the result of a check that comes before an operation. A failure counts as an operation:
/// a task may repeat what fails again and again.
pub(crate) async fn checked<T, E>(result: Result<T, E>) -> Result<T, E> {
    if result.is_err() {
        consume_budget().await;
    }
    result
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn what_is_not_rationed_is_not_counted() {
        let cx = Context::from_waker(Waker::noop());
        made_progress();
        assert_eq!(LEFT.get(), NOT_RATIONED);
        assert!(poll_proceed(&cx).is_ready());
        {
            let _ration = ration(u32::MAX);
            made_progress();
            assert_eq!(LEFT.get(), u64::from(u32::MAX) - 1);
        }
        assert_eq!(LEFT.get(), NOT_RATIONED);
    }

    #[test]
    fn a_spent_ration_stays_spent_and_one_operation_in_many_completes() {
        let cx = Context::from_waker(Waker::noop());
        let _ration = ration(3);
        (0..3).for_each(|_| made_progress());
        for _ in 0..3 {
            assert!(is_spent());
            for _ in 0..MOST_FORCED_YIELDS {
                assert!(poll_proceed(&cx).is_pending());
                made_progress();
                assert!(is_spent());
            }
            assert!(poll_proceed(&cx).is_ready());
            made_progress();
        }
    }
}
