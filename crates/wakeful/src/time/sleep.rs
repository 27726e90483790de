use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::event_loop::{LoopHandle, current};
use crate::task::coop;
use crate::timers::TimerKey;

/// Waits until `duration` has passed since this call. Any duration is allowed: what does not fit a
/// deadline is never reached.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// wakeful::block_on(async {
///     let start = Instant::now();
///     wakeful::time::sleep(Duration::from_micros(300)).await;
///     assert!(start.elapsed() >= Duration::from_micros(300));
/// });
/// ```
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(super::deadline_after(Instant::now(), duration))
}

/// Waits until `deadline`. One that has passed is ready at once.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, timer: None }
}

/// The future of [`sleep`] and [`sleep_until`].
///
/// It may be made anywhere; polled, it belongs to the loop of that thread, until it is polled on another one. Dropping it removes its timer.
///
/// *Cancel-safe*: polling it again, or dropping it, is always allowed.
///
/// # Panics
/// When it is polled where no loop runs.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    deadline: Instant,
    timer: Option<Timer>,
}

/// A timer of some loop, which need not be this thread's.
#[derive(Debug)]
struct Timer {
    handle: LoopHandle,
    key: TimerKey,
}

impl Timer {
    fn cancel(self) {
        let key = self.key;
        match current() {
            Some(inner) if inner.handle().is_same(&self.handle) => {
                let waker = inner.timers().borrow_mut().cancel(key);
                drop(waker);
            }
            // On another thread, or outside the loop's turns. Refused when the loop has ended, and then
            // the timer is gone too.
            _ => {
                let _ = self.handle.run(move || {
                    let waker = current().and_then(|i| i.timers().borrow_mut().cancel(key));
                    drop(waker);
                });
            }
        }
    }
}

impl Sleep {
    /// When it ends.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Has the deadline passed?
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Is it set in a loop? From a poll that was pending on; not behind [`reset`](Self::reset), and not by a poll that was pending because the task's
    /// cooperative budget was spent: that one changes nothing, and whoever was to be woken before still is.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.timer.is_some()
    }

    /// Moves the deadline, also of a sleep that has ended. The task is not woken until the new one.
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if let Some(timer) = self.timer.take() {
            timer.cancel();
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        std::task::ready!(coop::poll_proceed(cx));
        if self.is_elapsed() {
            if let Some(timer) = self.timer.take() {
                timer.cancel();
            }
            coop::made_progress();
            return Poll::Ready(());
        }
        let inner = current().expect("a Sleep is polled where an event loop runs");
        if let Some(timer) = self.timer.take_if(|timer| !timer.handle.is_same(inner.handle())) {
            timer.cancel();
        }
        let known = match &self.timer {
            Some(timer) => inner.timers().borrow_mut().set_waker(timer.key, cx.waker()),
            None => false,
        };
        if !known {
            let deadline = inner.nanoseconds(self.deadline);
            let waker = cx.waker().clone();
            let key = inner.timers().borrow_mut().insert(deadline, waker);
            self.timer = Some(Timer { handle: inner.handle().clone(), key });
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            timer.cancel();
        }
    }
}
