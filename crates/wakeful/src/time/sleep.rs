use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::now;
use crate::event_loop::{Inner, LoopHandle, current, explain_missing, guest_goes_on};
use crate::sys::panics;
use crate::task::coop;
use crate::timers::TimerKey;

/// After a deadline has passed, how soon the loop checks again whether it has fetched all that was
/// ready.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Waits until `duration` has passed since this call. Any duration is allowed. If no [`Instant`]
/// can hold the deadline, the sleep never ends.
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
    sleep_until(super::deadline_after(now(), duration))
}

/// Waits until `deadline`. If it has passed, the future is ready at once.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, timer: None, was_put_off: false }
}

/// The future of [`sleep`] and [`sleep_until`].
///
/// It may be created anywhere. Once polled, it belongs to the loop of that thread, until it is
/// polled on another thread. Dropping it removes its timer. If its loop ends, the waiting task is
/// woken. The next poll sets the timer in the loop of the polling thread.
///
/// # Cancel safety
/// Polling it again, or dropping it, is always allowed.
///
/// # Panics
/// If it is polled before its deadline on a thread where no loop runs.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    deadline: Instant,
    timer: Option<Timer>,
    /// Whether the sleep was over, and was put off because the task's budget was spent.
    was_put_off: bool,
}

/// A timer of some loop, perhaps of another thread's.
#[derive(Debug)]
struct Timer {
    handle: LoopHandle,
    key: TimerKey,
}

impl Timer {
    /// The timer's loop, if one of its turns runs on this thread.
    fn here(&self) -> Option<Rc<Inner>> {
        current().filter(|inner| inner.handle().is_same(&self.handle))
    }

    fn cancel(self) {
        match self.here() {
            // The task may be unwinding, and a second panic would abort the process.
            Some(inner) => panics::discard(inner.cancel_timer(self.key)),
            None => self.take_out(panics::discard),
        }
    }

    /// Moves the timer, which keeps its waker. `None`: it has fired, or its loop no longer has it.
    fn move_to(self, deadline: Instant) -> Option<Self> {
        let Some(inner) = self.here() else {
            // A message that moves the timer could arrive after a later reset. So the message takes
            // the timer out instead, and wakes the task, which sets it again.
            self.take_out(panics::wake);
            return None;
        };
        let key = inner.move_timer(self.key, inner.clock().timer_time(deadline))?;
        Some(Self { key, ..self })
    }

    /// Called from another thread, or outside the loop's turns. Removes the timer and passes its
    /// waker to `then`, on the loop. If the loop has ended, it refuses this, and the timer is gone
    /// anyway.
    fn take_out(self, then: fn(Waker)) {
        let key = self.key;
        let _ = self.handle.post(move || {
            if let Some(waker) = current().and_then(|inner| inner.cancel_timer(key)) {
                then(waker);
            }
        });
    }
}

impl Sleep {
    /// Returns the moment at which the sleep ends.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether the deadline has passed.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        now() >= self.deadline
    }

    /// Returns whether the sleep has set a timer in a loop, which will wake the waker of its last
    /// pending poll. It is `true` until the sleep is ready, even after the timer has fired.
    /// [`reset`](Self::reset) may change it.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.timer.is_some()
    }

    /// Moves the deadline, even of a sleep that has ended.
    ///
    /// The task that polled the sleep last is woken at the new deadline, and not at the old one. It
    /// need not poll the sleep again. If the new deadline has passed, the task is woken in the
    /// loop's next turn. If the old deadline has already woken the task, or if the sleep was never
    /// polled, the next poll sets the new deadline.
    ///
    /// # Threads
    /// If `reset` is called on another thread than that of the timer's loop, or outside that loop's
    /// turns, it sends the loop a message. The loop then wakes the waiting task at once, and the
    /// task's next poll sets the new deadline ([`is_set`](Self::is_set) is `false` until then).
    /// Before the message arrives, the old deadline may wake the task.
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.was_put_off = false;
        self.timer = self.timer.take().and_then(|timer| timer.move_to(deadline));
    }

    /// Has the loop of this thread wake `waker` at `instant`, unless its timer is set already.
    fn arm(&mut self, instant: Instant, waker: &Waker) {
        let Some(inner) = current() else {
            if guest_goes_on() {
                // This is one of Tokio's tasks, which is dropped soon.
                return;
            }
            let missing = explain_missing(
                "a Sleep was polled where no event loop runs: poll it within `wakeful::block_on` or a task of a loop",
            );
            panic!("{missing}")
        };
        if let Some(timer) = self.timer.take_if(|timer| !timer.handle.is_same(inner.handle())) {
            timer.cancel();
        }
        let key = self.timer.as_ref().map(|timer| timer.key);
        if key.and_then(|key| inner.timers().borrow().will_wake(key, waker)) == Some(true) {
            return;
        }
        // Cloning and dropping a waker may run user code, so the timers are not borrowed meanwhile.
        let waker = waker.clone();
        let replaced = match key {
            Some(key) => inner.timers().borrow_mut().set_waker(key, waker),
            None => Err(waker),
        };
        match replaced {
            Ok(old) => panics::discard(old),
            Err(waker) => {
                let key = inner.set_timer(inner.clock().timer_time(instant), waker);
                self.timer = Some(Timer { handle: inner.handle().clone(), key });
            }
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_elapsed() {
            let deadline = self.deadline;
            self.arm(deadline, cx.waker());
            return Poll::Pending;
        }
        self.poll_elapsed(cx)
    }
}

impl Sleep {
    /// Ready once the loop has seen all that arrived before the deadline.
    pub(super) fn poll_seen(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let has_seen = match current() {
            Some(inner) => inner.has_seen(self.deadline),
            None => self.is_elapsed(),
        };
        if has_seen {
            return self.poll_elapsed(cx);
        }
        // If the timer has fired already, more is ready than the loop fetches at once, and it needs
        // some turns.
        let instant = match self.timer {
            Some(_) => self.deadline.max(now() + LOOK_AGAIN),
            None => self.deadline,
        };
        self.arm(instant, cx.waker());
        Poll::Pending
    }

    /// Would [`poll_seen`](Self::poll_seen) be ready?
    pub(super) fn is_seen(&self) -> bool {
        current().is_some_and(|inner| inner.has_seen(self.deadline))
    }

    /// Ready when a timer has fired, even if the deadline has passed before. That is after all
    /// timers that were set for this moment.
    #[cfg(feature = "test-util")]
    pub(super) fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let has_fired = self.timer.as_ref().is_some_and(|timer| {
            let inner = timer.here();
            inner.is_some_and(|inner| !inner.timers().borrow().contains(timer.key))
        });
        if has_fired {
            return self.poll_elapsed(cx);
        }
        self.arm(self.deadline, cx.waker());
        Poll::Pending
    }

    fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The sleep is put off only once. In a task that spends its budget in every poll, it would
        // be put off for ever.
        if !self.was_put_off {
            self.was_put_off = true;
            std::task::ready!(coop::poll_proceed(cx));
        }
        self.was_put_off = false;
        if let Some(timer) = self.timer.take() {
            timer.cancel();
        }
        coop::made_progress();
        Poll::Ready(())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            timer.cancel();
        }
    }
}
