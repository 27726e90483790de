//! May the loop sleep? The one predicate that decides it, and the kinds of work that it asks about.

use std::io;
use std::time::Duration;

use super::inner::Inner;

/// Every kind of work that the loop itself holds. Work that other threads hold is in the ready
/// queue. A new kind becomes a field here, and then the compiler requires it in [`Inner::work`] and
/// in [`Work::any`]. (Events that the driver has fetched are no kind, because the turn that fetches
/// them dispatches all of them. If a panic prevents that, the next wait does not sleep.)
pub(super) struct Work {
    ready: bool,
    this_turn_callbacks: bool,
    next_turn_callbacks: bool,
    pub(super) due_timers: bool,
}

impl Work {
    #[inline]
    pub(super) fn any(&self) -> bool {
        let Self { ready, this_turn_callbacks, next_turn_callbacks, due_timers } = *self;
        ready || this_turn_callbacks || next_turn_callbacks || due_timers
    }
}

/// May the loop sleep?
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MayPark {
    /// Nothing is runnable. From now until the next `take_remote` a push rings the bell, unless a
    /// ring of this sleep is complete.
    Yes,
    /// The loop has work of its own.
    LocalWork,
    /// Another thread has pushed work.
    RemoteWork,
}

impl Inner {
    pub(super) fn prepare_to_park(&self) -> io::Result<bool> {
        self.handle.process().check_quickly()?;
        self.end_permission();
        if !self.may_foreign_loop_wait()? {
            return Ok(false);
        }
        #[cfg(feature = "test-util")]
        if self.clock.is_paused() {
            let jumped = self.jump_instead_of_foreign_sleep();
            if !matches!(jumped, Ok(false)) {
                self.end_permission();
                return jumped.map(|_| false);
            }
        }
        self.leave_cpu();
        let next = self.until_next_timer();
        self.driver.arm_timer(next).inspect_err(|_| self.end_permission())?;
        Ok(true)
    }

    /// May another event loop wait for this loop's descriptor now? If so, the queue is marked
    /// asleep. It must be marked awake before the call.
    ///
    /// # Errors
    /// A hook has forked, and this is the child, which must not touch its parent's descriptors.
    pub(super) fn may_foreign_loop_wait(&self) -> io::Result<bool> {
        if !self.callbacks.before_park.is_empty() && !self.work().any() {
            self.run_hooks(&self.callbacks.before_park)?;
        }
        self.driver.before_foreign_wait();
        // Events that are left over do not make the descriptor readable.
        Ok(!self.driver.has_left_over() && self.may_park() == MayPark::Yes)
    }

    /// May the loop sleep now?
    pub(super) fn may_park(&self) -> MayPark {
        self.may_park_before(self.until_next_timer())
    }

    /// The one predicate that decides whether the loop may sleep. `next_timer` is what
    /// [`until_next_timer`](Self::until_next_timer) has just returned, so that a park reads the
    /// clock once. Without inlining, this and [`ask`](Inner::ask) cost 16 more instructions a turn.
    #[inline(always)]
    pub(super) fn may_park_before(&self, next_timer: Option<Duration>) -> MayPark {
        if self.work_before(next_timer).any() {
            MayPark::LocalWork
        } else if self.local.try_sleep() {
            MayPark::Yes
        } else {
            MayPark::RemoteWork
        }
    }

    #[inline]
    pub(super) fn work(&self) -> Work {
        self.work_before(self.until_next_timer())
    }

    #[inline]
    fn work_before(&self, next_timer: Option<Duration>) -> Work {
        Work {
            ready: self.local.ready() > 0,
            this_turn_callbacks: !self.callbacks.this_turn.is_empty(),
            next_turn_callbacks: !self.callbacks.next_turn.is_empty(),
            due_timers: next_timer == Some(Duration::ZERO),
        }
    }

    /// Marks the queue awake again at the beginning of a turn, after `prepare_to_park` returned
    /// `true`, or after a panic in the wait.
    pub(super) fn end_permission(&self) {
        if self.local.is_asleep() {
            self.take_remote();
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
