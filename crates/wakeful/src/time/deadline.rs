use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::{Sleep, deadline_after, now, sleep_until};

/// A time limit for events. It expires only after the loop has handled the events that arrived
/// before it.
///
/// A process may be stopped for longer than a limit (SIGSTOP, a suspended machine). When it
/// continues, the clock has passed the limit, but bytes that arrived in time are still in the
/// kernel. A [`Sleep`] would expire at once. A `Deadline` waits until the loop has fetched the
/// events from the kernel, and then for one more turn. By then all tasks that wait for those bytes
/// have run once, and a task that gets the bytes through another task has been woken. Poll the
/// future that may complete before you poll the deadline, as [`timeout`](super::timeout) does.
///
/// It expires a turn or two later than a [`Sleep`] with the same instant. If more events are ready
/// than the loop fetches at once, it waits until all events that were ready at the limit are
/// fetched.
///
/// ```
/// use std::time::{Duration, Instant};
/// use wakeful::time::Deadline;
///
/// wakeful::block_on(async {
///     let end = Instant::now() + Duration::from_micros(300);
///     Deadline::at(end).await;
///     assert!(wakeful::time::seen_until() >= end);
/// });
/// ```
///
/// # Cancel safety
/// Polling it again, or dropping it, is always allowed.
///
/// # Panics
/// If it is polled before its instant on a thread where no loop runs.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Deadline {
    instant: Instant,
    sleep: Sleep,
    /// The limit has passed, and the loop has seen what arrived before. The sleep now waits for the
    /// turn after that.
    is_last_call: bool,
}

impl Deadline {
    /// Makes a deadline that expires at `instant`.
    pub fn at(instant: Instant) -> Self {
        Self { instant, sleep: sleep_until(instant), is_last_call: false }
    }

    /// Makes a deadline that expires `duration` after this call. If no [`Instant`] can hold the
    /// result, it never expires.
    pub fn after(duration: Duration) -> Self {
        Self::at(deadline_after(now(), duration))
    }

    /// Returns the moment at which the deadline expires.
    #[must_use]
    pub fn instant(&self) -> Instant {
        self.instant
    }

    /// Returns whether a loop will wake a task for it. See [`Sleep::is_set`].
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.sleep.is_set()
    }

    /// Moves the deadline, as [`Sleep::reset`] does.
    pub fn reset(&mut self, instant: Instant) {
        self.instant = instant;
        self.is_last_call = false;
        self.sleep.reset(instant);
    }
}

impl Future for Deadline {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.sleep.poll_seen(cx));
            if self.is_last_call {
                return Poll::Ready(());
            }
            self.is_last_call = true;
            self.sleep.reset(now());
            if self.sleep.is_seen() {
                // The clock stands still. This task's next poll comes after all tasks for which
                // something arrived before the limit, and after the tasks that these wake.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}
