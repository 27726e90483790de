//! A future that does not spend the cooperative budget.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::coop;

/// Lets `future` complete all ready operations in one poll. They do not spend the task's
/// [budget](crate::EventLoopBuilder::cooperative_budget), and are never postponed.
///
/// Use it for short work that must not be interrupted once it has begun, such as a batch of known
/// length that is written at once.
///
/// # Fairness
/// A loop bounds its turns by the number of polls and by their time, and reads the clock between
/// polls. Within a poll, the budget is the only bound. So while everything that `future` awaits is
/// ready (its socket always has data, its channel is never empty), no other work of the loop runs:
/// no other task, no timer, no timeout around it, no new connection. Such a poll becomes the loop's
/// [`longest_poll`](crate::LoopMetrics::longest_poll), and its turn is reported as slow. Never wrap
/// a future that a client can keep ready.
///
/// Operations of the same task outside `future` have the budget that was left before. With Tokio as
/// a guest, Tokio's own types spend Tokio's own budget. For these, use
/// `tokio::task::unconstrained`.
///
/// # Cancel safety
/// The same as for `future`.
///
/// # Examples
/// ```
/// use wakeful::task::{consume_budget, unconstrained};
///
/// wakeful::block_on(async {
///     let batch = wakeful::spawn(unconstrained(async {
///         for _ in 0..1_000 {
///             consume_budget().await; // or a write to a socket that has room
///         }
///     }));
///     // It runs when the whole batch is done. Without `unconstrained`, after 128 steps of it.
///     let other = wakeful::spawn(async move { batch.is_finished() });
///     assert!(other.await.expect("no panic"));
/// });
/// ```
pub fn unconstrained<F: IntoFuture>(future: F) -> Unconstrained<F::IntoFuture> {
    Unconstrained { future: future.into_future() }
}

pin_project_lite::pin_project! {
    /// The future of [`unconstrained`].
    #[derive(Debug, Clone)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct Unconstrained<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Unconstrained<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _unconstrained = coop::unconstrained();
        self.project().future.poll(cx)
    }
}
