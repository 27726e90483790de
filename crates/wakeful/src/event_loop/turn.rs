//! One turn: the phases in order, each bounded.

use std::io;
use std::time::{Duration, Instant};

use super::inner::Inner;
use crate::metrics::Polls;
use crate::priority::Priority;
use crate::sys::fork_check::Process;
use crate::sys::panics;
use crate::task::{Share, coop};
use crate::timers::TimerTime;

impl Inner {
    /// Takes one turn of the loop, which must be entered. See
    /// [`EventLoop`](super::EventLoop#a-turn).
    pub(super) fn turn(&self, max_wait: Option<Duration>) -> io::Result<()> {
        self.turn_by(|| self.wait(max_wait), None)
    }

    /// A turn whose phase 1 is `wait`. Phase 6 stops after its first poll if no `operations` are
    /// left.
    #[inline(always)]
    pub(super) fn turn_by(
        &self,
        wait: impl FnOnce() -> io::Result<()>,
        operations: Option<fn() -> bool>,
    ) -> io::Result<()> {
        self.handle.process().check_quickly()?;
        self.counters.turns.add(1);
        self.end_permission();
        let waited = wait();
        // This comes before any user code can run, and also after an error, so that the queue is
        // marked awake from here on.
        self.take_remote();
        waited?;
        let mut polls = self.stopwatch.turn_begins();
        self.turn_time.set(None);
        self.dispatch_events();
        let process = self.handle.process();
        let limit = self.settings.turn_budget;
        let mut budget = Budget { limit, start: None, process, operations };
        self.expire_timers(&mut budget);
        self.run_next_turn_callbacks(&mut budget)?;
        self.run_ready(&mut budget, &mut polls);
        // If a turn forks, only the parent continues it. A hook of the child would write what its
        // parent also writes, and other processes would take the child's reports for its parent's.
        process.check_quickly()?;
        self.run_this_turn_callbacks(&mut budget)?;
        self.run_hooks(&self.callbacks.after_turn)?;
        self.stopwatch.turn_ends(polls);
        let now = self.stopwatch.last();
        if self.pulse.is_due(now) {
            self.pulse.look(now, self.counters.idle_ticks());
        }
        Ok(())
    }

    /// Phase 2: takes the work that other threads have queued.
    pub(super) fn take_remote(&self) {
        self.local.take_remote();
    }

    /// Phase 3: dispatches events.
    fn dispatch_events(&self) {
        let dispatched = self.driver.dispatch();
        if dispatched > 0 {
            self.counters.events.add(dispatched as u64);
            if dispatched > 1 {
                self.counters.events_per_wait.record(dispatched as u64);
                // This time must not count as a part of the first poll.
                self.stopwatch.skip();
            }
        }
    }

    /// Phase 4: expires timers.
    fn expire_timers(&self, budget: &mut Budget<'_>) {
        if self.timers.borrow().len() == 0 {
            return;
        }
        self.look_at_the_clock();
        let now = self.arrivals.reading();
        // The limit is not `now`: after a pause, data that arrived before a deadline may still be
        // in the kernel.
        let asked_until = self.arrivals.asked_until();
        let mut expired = 0;
        while let Some(deadline) = self.next_deadline().filter(|deadline| *deadline <= asked_until)
        {
            if !budget.allows(expired, self.settings.timer_budget) {
                self.counters.budget_exhaustions.add(1);
                break;
            }
            // This is not in the loop's condition, because the borrow must end before the waker
            // runs.
            let due = self.timers.borrow_mut().pop_due(asked_until);
            let Some(waker) = due else { break };
            if self.clock.runs() {
                self.counters.timer_lateness.record(now.nanos_since(deadline));
            }
            panics::wake(waker);
            expired += 1;
        }
        if expired > 0 {
            self.counters.timers.add(expired.into());
            self.stopwatch.skip();
        }
    }

    /// Phase 5: runs the callbacks that were queued when the phase began.
    fn run_next_turn_callbacks(&self, budget: &mut Budget<'_>) -> io::Result<()> {
        let turn = self.counters.turns.get();
        if self.callbacks.next_turn.is_empty() || self.tasks_first_in.get() == turn {
            return Ok(());
        }
        let queued = u32::try_from(self.callbacks.next_turn.len()).unwrap_or(u32::MAX);
        self.run_callbacks(&self.callbacks.next_turn, queued, budget)?;
        if budget.lacks_operations() {
            self.tasks_first_in.set(turn.wrapping_add(1));
        }
        Ok(())
    }

    /// Phase 7: runs callbacks, also those that are queued meanwhile.
    fn run_this_turn_callbacks(&self, budget: &mut Budget<'_>) -> io::Result<()> {
        if self.callbacks.this_turn.is_empty() {
            return Ok(());
        }
        self.run_callbacks(&self.callbacks.this_turn, u32::MAX, budget)
    }

    /// # Errors
    /// A hook has forked, and this is the child.
    #[inline(always)]
    pub(super) fn run_hooks(&self, hooks: &super::callbacks::Hooks) -> io::Result<()> {
        if hooks.is_empty() { Ok(()) } else { self.run_all(hooks) }
    }

    #[cold]
    fn run_all(&self, hooks: &super::callbacks::Hooks) -> io::Result<()> {
        self.local.runs_no_node();
        let process = self.handle.process();
        self.counters.callbacks.add(hooks.run(process));
        self.stopwatch.skip();
        process.check_quickly()
    }

    /// Runs up to `wanted` callbacks, as far as the budget allows.
    ///
    /// # Errors
    /// A callback has forked, and this is the child.
    fn run_callbacks(
        &self,
        from: &super::callbacks::Once,
        wanted: u32,
        budget: &mut Budget<'_>,
    ) -> io::Result<()> {
        self.local.runs_no_node();
        let mut ran = 0;
        while ran < wanted && !from.is_empty() {
            if !budget.allows(ran, self.settings.callback_budget) {
                self.counters.budget_exhaustions.add(1);
                break;
            }
            from.run_first();
            ran += 1;
        }
        self.counters.callbacks.add(ran.into());
        self.stopwatch.skip();
        budget.process.check_quickly()
    }

    /// Phase 6: runs ready tasks.
    fn run_ready(&self, budget: &mut Budget<'_>, polls: &mut Polls) {
        let _ration = coop::ration(self.settings.cooperative_budget);
        self.local.before_running(self.settings.task_budget as usize);
        if self.local.ready() > 1 {
            self.counters.queue_depth.record(self.local.ready() as u64 - 1);
        }
        let next = || {
            coop::reset(self.settings.cooperative_budget);
            self.local.run_normal()
        };
        // The first poll is separate from the rest, because it is often the only one.
        if budget.allows(0, self.settings.task_budget)
            && let Some(spawned_at) = next()
        {
            self.stopwatch.polled_first(spawned_at, polls);
            while budget.allows_poll(polls.number, self.settings.task_budget) {
                let Some(spawned_at) = next() else { break };
                self.stopwatch.polled_next(spawned_at, polls);
            }
        }
        if self.local.ready() > 0 {
            self.run_by_class(budget, polls);
        }
    }

    /// The rest of phase 6, from the moment when a high-priority task is ready, or the budget is
    /// spent.
    #[inline(never)]
    fn run_by_class(&self, budget: &mut Budget<'_>, polls: &mut Polls) {
        let turn = self.counters.turns.get();
        let first =
            if self.normal_first_in.get() == turn { Priority::Normal } else { Priority::High };
        let mut share = Share::new(self.settings.task_budget, STEPS_PER_LOOK, first);
        while budget.allows_poll(polls.number, self.settings.task_budget) {
            coop::reset(self.settings.cooperative_budget);
            let Some(spawned_at) = self.local.run_by_class(polls.number, &mut share) else {
                return;
            };
            self.stopwatch.polled_next(spawned_at, polls);
        }
        if self.local.ready() > 0 {
            self.counters.budget_exhaustions.add(1);
        }
        // Without this, a high-priority task that uses all operations of each turn would starve
        // normal ones: it would also be the first one in the next turn.
        let ran_no_normal = share.high() == polls.number;
        if ran_no_normal && self.local.has_normal() && budget.lacks_operations() {
            self.normal_first_in.set(turn.wrapping_add(1));
        }
    }

    #[inline]
    pub(super) fn next_deadline(&self) -> Option<TimerTime> {
        self.timers.borrow().next_deadline()
    }

    /// How long until a timer is due. The clock is read only if there is a timer. `None`: there is
    /// no timer, or its clock stands still.
    #[inline]
    pub(super) fn until_next_timer(&self) -> Option<Duration> {
        self.until_timer(self.next_deadline()?)
    }

    /// A separate function, so that a loop without timers reserves no stack for it.
    #[inline(never)]
    fn until_timer(&self, due: TimerTime) -> Option<Duration> {
        self.clock.until(due, self.now().timers)
    }
}

/// How much a turn may still do. The clock is first read after a few steps, so that a turn with
/// little to do never reads it.
struct Budget<'a> {
    limit: Duration,
    start: Option<Instant>,
    process: &'a Process,
    /// Returns whether operations are left that all tasks of a turn share. It is set for a loop
    /// within a runtime whose budget covers all that the loop does in one poll.
    operations: Option<fn() -> bool>,
}

/// A clock reading costs 8 ns or more, so there is one for this many steps.
const STEPS_PER_LOOK: u32 = 8;

impl Budget<'_> {
    /// May a phase that has taken `done` steps of `most` take another? The first few steps are
    /// always allowed.
    #[inline]
    fn allows(&mut self, done: u32, most: u32) -> bool {
        // If a turn forks, only the parent continues it.
        done < most
            && !self.process.is_forked()
            && (done == 0 || !done.is_multiple_of(STEPS_PER_LOOK) || !self.is_spent())
    }

    /// Like [`allows`](Self::allows), for polls of tasks.
    #[inline]
    fn allows_poll(&mut self, done: u32, most: u32) -> bool {
        self.allows(done, most) && (done == 0 || !self.lacks_operations())
    }

    #[inline]
    fn lacks_operations(&self) -> bool {
        self.operations.is_some_and(|left| !left())
    }

    fn is_spent(&mut self) -> bool {
        let now = Instant::now();
        now.duration_since(*self.start.get_or_insert(now)) >= self.limit
    }
}
