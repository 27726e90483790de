//! The parts of a loop.

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
use crate::task::local::Local;
use crate::task::{Attempts, JoinHandle};
use crate::timers::{TimerKey, TimerTime, Timers};

/// The parts of a loop. Only the thread-local that knows the current loop shares it. It never
/// leaves its thread.
pub(crate) struct Inner {
    pub(super) handle: LoopHandle,
    pub(super) driver: Rc<Driver>,
    pub(super) local: Local,
    pub(super) timers: RefCell<Timers>,
    pub(super) callbacks: Rc<Callbacks>,
    pub(super) counters: Arc<Counters>,
    pub(super) stopwatch: Stopwatch,
    pub(super) pulse: Pulse,
    /// Set only if the loop belongs to a group.
    pub(super) sleep_observer: OnceCell<Box<dyn SleepObserver>>,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) idle: Idle,
    #[cfg(feature = "tokio")]
    pub(super) guest_idle: super::guest_idle::GuestIdle,
    #[cfg(feature = "test-util")]
    pub(super) in_flight: Arc<InFlight>,
    /// Whether the last turn found remote work at the moment of its sleep, and so did not ask the
    /// driver.
    pub(super) skipped: Cell<bool>,
    /// The number of the turn in which a normal node comes before high-priority ones, because the
    /// turn before it had no operations left for one.
    pub(super) normal_first_in: Cell<u64>,
    /// The number of the turn that runs no callbacks before the tasks, because those of the turn
    /// before it left the tasks no operations.
    pub(super) tasks_first_in: Cell<u64>,
    pub(super) arrivals: Arrivals,
    pub(super) values: LoopValues,
    /// To start a thread for blocking work.
    pub(super) attempts: Attempts,
    /// The time of this turn's last clock reading, if there was one, and the stopwatch's stamp at
    /// that moment.
    pub(super) turn_time: Cell<Option<(Instant, u64)>>,
}

impl Inner {
    pub(crate) fn handle(&self) -> &LoopHandle {
        &self.handle
    }

    pub(crate) fn driver(&self) -> &Rc<Driver> {
        &self.driver
    }

    /// The values that each [`PerLoop`](crate::PerLoop) has made on this loop.
    pub(crate) fn values(&self) -> &LoopValues {
        &self.values
    }

    pub(crate) fn timers(&self) -> &RefCell<Timers> {
        &self.timers
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The time as this turn has read it. It is never before the deadline of a timer that the turn
    /// has fired. After something has blocked the loop, the clock is read again.
    #[inline]
    pub(crate) fn turn_time(&self) -> Instant {
        match self.turn_time.get() {
            Some((at, stamp)) if self.stopwatch.is_recent(stamp) => at,
            _ => self.look_at_the_clock(),
        }
    }

    /// Has `deadline` passed, and has the loop seen all that arrived before it?
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

    /// Are there other tasks than the one that is running, which calls this? A task that was
    /// spawned and has not run yet is only in the ready list.
    pub(crate) fn has_other_tasks(&self) -> bool {
        self.local.tasks() > 1 || self.local.ready() > 0
    }

    /// Is there any task, or anything that is ready to run? Messages of other threads count only
    /// after a turn has taken them.
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

    /// Removes a timer, and returns its waker. The caller must drop or wake it where nothing is
    /// borrowed.
    pub(crate) fn cancel_timer(&self, key: TimerKey) -> Option<Waker> {
        self.timers.borrow_mut().cancel(key)
    }

    /// Called when work without a node was queued. The loop may have decided to sleep already (for
    /// example, if the code runs in a log line on the way to the wait, or if another loop drives
    /// this one). Then this ends the wait.
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

    /// Tells `observer` of each sleep from now on, and lets the alarms, if there are any, wake the
    /// loop when it sleeps.
    pub(super) fn observe_sleep<'a>(
        &self,
        observer: Box<dyn SleepObserver>,
        alarms: impl IntoIterator<Item = &'a Timer>,
    ) -> io::Result<()> {
        for alarm in alarms {
            self.driver.watch_alarm(alarm)?;
        }
        // The loop may run turns for long before it first sleeps.
        observer.after_sleep();
        let fresh = self.sleep_observer.set(observer).is_ok();
        debug_assert!(fresh, "a loop is of one group");
        Ok(())
    }
}
