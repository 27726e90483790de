//! What a loop consists of.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::arrivals::Arrivals;
use super::callbacks::Callbacks;
use super::clock::Clock;
use super::handle::LoopHandle;
use super::loop_values::LoopValues;
use super::pulse::{Pulse, Spent};
use super::settings::Settings;
use super::sleep_observer::SleepObserver;
use crate::driver::Driver;
use crate::driver::epoll::Timer;
use crate::idle::Idle;
use crate::metrics::{Counters, Stopwatch};
use crate::priority::Priority;
#[cfg(feature = "test-util")]
use crate::task::InFlight;
use crate::task::JoinHandle;
use crate::task::local::Local;
use crate::timers::{TimerKey, TimerTime, Timers};

/// What a loop consists of. Shared with the thread-local that knows the current loop, and with
/// nobody else; it never leaves its thread.
pub(crate) struct Inner {
    pub(super) handle: LoopHandle,
    pub(super) driver: Rc<Driver>,
    pub(super) local: Local,
    pub(super) timers: RefCell<Timers>,
    pub(super) callbacks: Rc<Callbacks>,
    pub(super) counters: Arc<Counters>,
    pub(super) stopwatch: Stopwatch,
    pub(super) pulse: Pulse,
    /// Of a group's loop.
    pub(super) sleep_observer: OnceCell<Box<dyn SleepObserver>>,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) idle: Idle,
    #[cfg(feature = "tokio")]
    pub(super) guest_idle: super::guest_idle::GuestIdle,
    #[cfg(feature = "test-util")]
    pub(super) in_flight: Arc<InFlight>,
    /// The last turn found remote work in the moment of its sleep, and did not ask the driver.
    pub(super) skipped: Cell<bool>,
    pub(super) arrivals: Arrivals,
    pub(super) values: LoopValues,
    /// When this turn last looked at the clock, if it has, and the stopwatch's stamp of that.
    pub(super) turn_time: Cell<Option<(Instant, u64)>>,
}

impl Inner {
    pub(crate) fn handle(&self) -> &LoopHandle {
        &self.handle
    }

    pub(crate) fn driver(&self) -> &Rc<Driver> {
        &self.driver
    }

    /// What each [`PerLoop`](crate::PerLoop) has made here.
    pub(crate) fn values(&self) -> &LoopValues {
        &self.values
    }

    pub(crate) fn timers(&self) -> &RefCell<Timers> {
        &self.timers
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The clock as this turn has read it: not before the deadline of a timer that it has fired.
    /// Behind what blocks the loop it is read again.
    #[inline]
    pub(crate) fn turn_time(&self) -> Instant {
        match self.turn_time.get() {
            Some((at, stamp)) if self.stopwatch.is_recent(stamp) => at,
            _ => self.look_at_the_clock(),
        }
    }

    /// Has the loop seen all that arrived before `deadline`, and has that passed?
    pub(crate) fn has_seen(&self, deadline: Instant) -> bool {
        self.clock.timer_time(deadline) <= self.arrivals.seen_until()
    }

    /// See [`time::seen_until`](crate::time::seen_until).
    pub(crate) fn seen_until(&self) -> Instant {
        self.clock.instant(self.arrivals.seen_until())
    }

    pub(super) fn look_at_the_clock(&self) -> Instant {
        let (stamp, now) = (self.stopwatch.stamp(), self.clock.now());
        self.arrivals.read(self.clock.timer_time(now));
        self.turn_time.set(Some((now, stamp)));
        now
    }

    /// Asked by a task while it runs: is there any other? One that was spawned and has not run yet
    /// is known to the ready list only.
    pub(crate) fn has_other_tasks(&self) -> bool {
        self.local.tasks() > 1 || self.local.ready() > 0
    }

    /// Is there any task, or anything that is ready to run? What other threads have sent is counted
    /// when a turn has taken it.
    pub(super) fn has_tasks(&self) -> bool {
        self.local.tasks() > 0 || self.local.ready() > 0
    }

    #[track_caller]
    pub(super) fn spawn<F: Future + 'static>(
        &self,
        priority: Priority,
        future: F,
    ) -> JoinHandle<F::Output> {
        self.local.spawn(priority, future)
    }

    pub(super) fn run_this_turn(&self, callback: impl FnOnce() + 'static) {
        self.callbacks.run_this_turn(callback);
        self.queued();
    }

    pub(super) fn run_next_turn(&self, callback: impl FnOnce() + 'static) {
        self.callbacks.run_next_turn(callback);
        self.queued();
    }

    /// Has `waker` woken at `deadline`.
    pub(crate) fn set_timer(&self, deadline: TimerTime, waker: Waker) -> TimerKey {
        let key = self.timers.borrow_mut().insert(deadline, waker);
        self.queued();
        key
    }

    /// Moves a timer, which keeps its waker. `None`: it is not there any more.
    pub(crate) fn move_timer(&self, key: TimerKey, deadline: TimerTime) -> Option<TimerKey> {
        let key = self.timers.borrow_mut().set_deadline(key, deadline);
        self.queued();
        key
    }

    /// Removes a timer. Its waker is to be dropped or woken where nothing is borrowed.
    pub(crate) fn cancel_timer(&self, key: TimerKey) -> Option<Waker> {
        self.timers.borrow_mut().cancel(key)
    }

    /// Work without a node was queued. Where the loop has decided to sleep already (a log line on
    /// its way to the wait, or another loop that drives this one), this ends the wait.
    #[inline]
    pub(super) fn queued(&self) {
        if self.local.is_asleep() {
            self.end_sleep();
        }
    }

    #[cold]
    fn end_sleep(&self) {
        #[cfg(feature = "tokio")]
        if self.local.wake_host() {
            return;
        }
        self.handle.wake();
    }

    /// Has `look` called at the end of a turn, when this much time has passed since the last call.
    /// A loop that sleeps calls it later.
    pub(super) fn look_every(&self, time: Duration, look: impl Fn(Spent) + 'static) {
        self.pulse.begin(time, self.stopwatch.last(), self.counters.idle_ticks(), look);
    }

    /// Has `observer` told of each sleep from now on, and the loop woken by the alarms, if there
    /// are any, when it sleeps.
    pub(super) fn observe_sleep<'a>(
        &self,
        observer: Box<dyn SleepObserver>,
        alarms: impl IntoIterator<Item = &'a Timer>,
    ) -> io::Result<()> {
        for alarm in alarms {
            self.driver.watch_alarm(alarm)?;
        }
        // It may take turns for long before it first sleeps.
        observer.after_sleep();
        let fresh = self.sleep_observer.set(observer).is_ok();
        debug_assert!(fresh, "a loop is of one group");
        Ok(())
    }
}
