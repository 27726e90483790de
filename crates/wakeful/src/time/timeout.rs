use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::Deadline;
use crate::task::coop;

/// Waits for `future`, and cancels it if it takes longer than `duration`, counted from this call.
/// If no [`Instant`] can hold the deadline, there is no time limit.
///
/// ```
/// use std::time::Duration;
/// use wakeful::time::timeout;
///
/// wakeful::block_on(async {
///     let late = timeout(Duration::from_millis(1), std::future::pending::<()>()).await;
///     assert!(late.is_err());
///     assert_eq!(timeout(Duration::MAX, async { 42 }).await, Ok(42));
/// });
/// ```
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout { future: future.into_future(), deadline: Deadline::after(duration) }
}

/// Waits for `future`, and cancels it at `deadline`. Otherwise like [`timeout`].
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout { future: future.into_future(), deadline: Deadline::at(deadline) }
}

/// The error of a [`Timeout`]: the time limit has passed, and the future was not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the deadline has passed")]
#[non_exhaustive]
pub struct Elapsed;

impl From<Elapsed> for std::io::Error {
    fn from(elapsed: Elapsed) -> Self {
        Self::new(std::io::ErrorKind::TimedOut, elapsed)
    }
}

pin_project_lite::pin_project! {
    /// The future of [`timeout`] and [`timeout_at`].
    ///
    /// If the future is ready, its output is returned even if the deadline has passed. The deadline
    /// is a [`Deadline`]: if the process was stopped, the future can still complete with data that
    /// arrived meanwhile. The inner future is dropped together with this one.
    ///
    /// # Errors
    /// [`Elapsed`]: the deadline has passed, and the inner future is not ready.
    ///
    /// # Cancel safety
    /// Dropping it drops the inner future. To keep the inner future, pass `&mut future`.
    ///
    /// # Panics
    /// If it has to wait on a thread where no loop runs, or if the inner future panics.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        deadline: Deadline,
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let was_spent = coop::is_spent();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        // The timeout must also work for a future that spends the budget in every poll, so the
        // deadline gets one operation.
        let _ration = (!was_spent && coop::is_spent()).then(|| coop::ration(1));
        Pin::new(this.deadline).poll(cx).map(|()| Err(Elapsed))
    }
}
