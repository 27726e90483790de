//! The end of a loop within a grace period.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::inner::Inner;
use super::value::EventLoop;
use crate::driver::epoll;
use crate::driver::interest::Interest;
use crate::driver::registered::Registered;
use crate::sys::patience::Patience;
use crate::timers::TimerKey;

/// A paused clock jumps over each slice of a grace period, so slices are long. But a clock must be
/// able to represent the end of a slice.
const LONGEST_SLICE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl EventLoop {
    /// Runs the loop until no task is left, for up to `grace`, and then ends it. Remaining tasks
    /// are dropped. Returns whether all tasks had finished.
    ///
    /// The call does not ask tasks to finish. Do that before the call, or from another thread
    /// during it. Only time in which the process runs counts towards `grace`, so SIGSTOP or a
    /// suspended machine does not shorten it. With `Duration::ZERO` the loop takes no turn, and the
    /// result is true only if nothing was queued.
    ///
    /// The loop ends in this call, on this thread, even if handles of it still exist (see [The
    /// end](Self#the-end)). A task or a destructor that blocks makes the call take longer than
    /// `grace`. ([`LoopGroup::shutdown`](crate::LoopGroup::shutdown) waits for such a loop for only
    /// one more second.) The call does not wait for work on other threads
    /// ([`spawn_blocking`](crate::task::spawn_blocking)), nor for Tokio's tasks if Tokio is a
    /// guest.
    ///
    /// If a test has paused the clock (`wakeful::time::pause`), the clock jumps as usual, and
    /// reaches the end of `grace` at once if nothing else is left. The grace period also ends when
    /// that much time has passed on the machine's clock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeful::time::sleep;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let mut event_loop = wakeful::EventLoop::new()?;
    /// event_loop.block_on(async {
    ///     wakeful::spawn(sleep(Duration::from_millis(1))).detach();
    ///     wakeful::spawn(std::future::pending::<()>()).detach();
    /// })?;
    /// let all_finished = event_loop.shutdown(Duration::from_millis(20))?;
    /// assert!(!all_finished, "one never ends");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as for [`run`](Self::run). The loop ends even then.
    pub fn shutdown(mut self, grace: Duration) -> io::Result<bool> {
        self.inner.handle.process().check()?;
        let mut patience = Patience::new(grace);
        // The queue counts as work, because only a turn finds out what is in it.
        let queued = self.inner.handle.queue().is_pending();
        let mut is_idle = grace.is_zero() && !queued && !self.inner.has_tasks();
        while !is_idle && !patience.left().is_zero() {
            let clock = &self.inner.clock;
            let slice = match clock.runs() {
                true => patience.slice(),
                false => patience.left().min(LONGEST_SLICE),
            };
            let (began, really_began) = (clock.now(), Instant::now());
            is_idle = self.run_until_idle(began + slice, slice)?;
            let took = self.inner.clock.now().saturating_duration_since(began);
            patience.took(slice, took.max(really_began.elapsed()));
        }
        Ok(is_idle)
    }

    /// Runs turns until the loop has no task left (`true`), or until `end`, which is a `slice` from
    /// now.
    fn run_until_idle(&mut self, end: Instant, slice: Duration) -> io::Result<bool> {
        let inner = self.inner.clone();
        let clock_runs = inner.clock.runs();
        let alarm = if clock_runs { None } else { Some(alarm(&inner, slice)?) };
        let is_idle = Rc::new(Cell::new(false));
        let waiter: Rc<Cell<Option<Waker>>> = Rc::default();
        let hook = self.after_turn({
            let (inner, is_idle, waiter) = (inner.clone(), is_idle.clone(), waiter.clone());
            move || {
                is_idle.set(!inner.has_tasks());
                // A task has paused the clock. From here on, only an alarm ends the slice.
                let is_over = is_idle.get() || inner.clock.runs() != clock_runs;
                if is_over && let Some(waiter) = waiter.take() {
                    waiter.wake();
                }
            }
        });
        let mut timer = Timer { inner: &inner, key: None };
        let idle_or_late = poll_fn(|cx| {
            let has_changed = inner.clock.runs() != clock_runs;
            if is_idle.get() || has_changed || inner.clock.now() >= end {
                return Poll::Ready(is_idle.get());
            }
            if let Some(alarm) = &alarm
                && alarm.poll_seen_alone(Interest::READABLE, cx).is_ready()
            {
                return Poll::Ready(false);
            }
            waiter.set(Some(cx.waker().clone()));
            if timer.key.is_none() {
                // The first turn must not wait, because there may be no task.
                cx.waker().wake_by_ref();
                timer.set(end, cx.waker());
            }
            Poll::Pending
        });
        let ran = self.block_on(idle_or_late);
        drop(hook);
        ran
    }
}

/// A descriptor that is readable after this much time by the machine's clock. A timer of a paused
/// clock may never be due, because the clock does not jump while a task is awake, or blocking work
/// is in flight.
fn alarm(inner: &Inner, after: Duration) -> io::Result<Registered<epoll::Timer>> {
    let alarm = epoll::Timer::new()?;
    alarm.arm(Some(after))?;
    Registered::watched(&inner.driver, alarm)
}

/// A timer that is cancelled when its wait ends.
struct Timer<'a> {
    inner: &'a Inner,
    key: Option<TimerKey>,
}

impl Timer<'_> {
    fn set(&mut self, at: Instant, waker: &Waker) {
        let at = self.inner.clock.timer_time(at);
        self.key = Some(self.inner.set_timer(at, waker.clone()));
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            drop(self.inner.cancel_timer(key));
        }
    }
}
