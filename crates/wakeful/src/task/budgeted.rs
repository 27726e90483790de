//! Makes futures and streams of other libraries spend the cooperative budget.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::coop;

/// Makes `future` count as one operation of the task's
/// [budget](crate::EventLoopBuilder::cooperative_budget). When the budget is spent, the future is
/// pending once, so that the loop's other tasks, sockets and timers can run.
///
/// wakeful's sockets, timers and handles do this themselves. The futures of other libraries ignore
/// the budget. If a task awaits a channel that is never empty, or a lock that is always free, it
/// never returns to its loop, and all other work of the loop waits. Wrap each such await:
///
/// ```
/// use wakeful::task::budgeted;
///
/// wakeful::block_on(async {
///     let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
///     (0..1_000).for_each(|number| sender.send(number).expect("the receiver lives"));
///     drop(sender);
///     let sum = wakeful::spawn(async move {
///         let mut sum = 0;
///         while let Some(number) = budgeted(receiver.recv()).await {
///             sum += number;
///         }
///         sum
///     });
///     // It runs after the first 128 messages. Without `budgeted`, after all thousand.
///     let other = wakeful::spawn(async move { (sum.is_finished(), sum) });
///     let (was_finished, sum) = other.await.expect("no panic");
///     assert!(!was_finished);
///     assert_eq!(sum.await.expect("no panic"), 499_500);
/// });
/// ```
///
/// The budget is checked before each poll, so wrap each operation *inside* a loop. Wrapping a whole
/// `async` block that contains the loop has no effect. For a [`Stream`] use [`budgeted_stream`].
/// For work without an await use [`consume_budget`](super::consume_budget).
///
/// With Tokio as a guest, Tokio's channels and sockets spend Tokio's own budget, and need no
/// wrapper. With a runtime beside the loops (`tokio_handle`) they spend none.
///
/// # Cancel safety
/// The same as for `future`. While the budget is spent, `future` is not polled.
pub fn budgeted<F: IntoFuture>(future: F) -> Budgeted<F::IntoFuture> {
    Budgeted { future: future.into_future() }
}

pin_project_lite::pin_project! {
    /// The future of [`budgeted`].
    #[derive(Debug, Clone)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct Budgeted<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Budgeted<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        ready!(coop::poll_proceed(cx));
        let output = ready!(self.project().future.poll(cx));
        coop::made_progress();
        Poll::Ready(output)
    }
}

/// Makes each item of `stream` count as one operation of the task's budget, as [`budgeted`] does
/// for a future.
///
/// ```
/// use futures_util::StreamExt;
/// use wakeful::task::budgeted_stream;
///
/// wakeful::block_on(async {
///     let numbers = budgeted_stream(futures_util::stream::iter(0..1_000));
///     let sum = wakeful::spawn(numbers.fold(0, |sum, number| async move { sum + number }));
///     // It runs after the first 128 numbers.
///     let other = wakeful::spawn(async move { (sum.is_finished(), sum) });
///     let (was_finished, sum) = other.await.expect("no panic");
///     assert!(!was_finished);
///     assert_eq!(sum.await.expect("no panic"), 499_500);
/// });
/// ```
pub fn budgeted_stream<S: Stream>(stream: S) -> BudgetedStream<S> {
    BudgetedStream { stream }
}

pin_project_lite::pin_project! {
    /// The stream of [`budgeted_stream`].
    #[derive(Debug, Clone)]
    #[must_use = "streams do nothing unless polled"]
    pub struct BudgetedStream<S> {
        #[pin]
        stream: S,
    }
}

impl<S> BudgetedStream<S> {
    /// Returns a reference to the inner stream.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Returns a mutable reference to the inner stream. Polls through this reference spend no
    /// budget.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Returns the inner stream.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: Stream> Stream for BudgetedStream<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        ready!(coop::poll_proceed(cx));
        let item = ready!(self.project().stream.poll_next(cx));
        coop::made_progress();
        Poll::Ready(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}
