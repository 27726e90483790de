//! A loop whose timers' clock is paused (feature `test-util`). When nothing is ready and the loop
//! would sleep, the clock jumps to the next timer instead.
//!
//! Whatever is ready comes first: tasks, callbacks, posts, and events of the kernel. While blocking
//! work is in flight, the loop sleeps as usual, and ignores timers. A socket that nobody has
//! written to does not delay the jump.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::clock::Refusal;
use super::inner::Inner;
use crate::driver::epoll::Timeout;
use crate::timers::TimerTime;

impl Inner {
    /// See [`time::pause`](crate::time::pause).
    #[track_caller]
    pub(crate) fn pause_clock(&self) -> Result<(), Refusal> {
        self.clock.source().pause()?;
        self.clock_changed();
        Ok(())
    }

    /// See [`time::resume`](crate::time::resume).
    #[track_caller]
    pub(crate) fn resume_clock(&self) -> Result<(), Refusal> {
        self.clock.source().resume()?;
        self.clock_changed();
        Ok(())
    }

    /// See [`time::advance`](crate::time::advance). `false`: the clock is Tokio's, which advances
    /// it itself.
    pub(crate) fn advance_clock(&self, duration: Duration) -> Result<bool, Refusal> {
        // At the clock's last moment all timers would be due, and later sleeps would find again and
        // again that they are not over.
        let later = self.clock.now().checked_add(duration);
        let fits = later.is_some_and(|later| self.clock.timer_time(later) < TimerTime::LAST);
        if !fits && self.clock.is_paused() {
            return Err("the loop's clock cannot be advanced so far");
        }
        let moved = self.clock.source().advance(duration)?;
        self.clock_changed();
        Ok(moved)
    }

    /// Forgets the loop's readings of its clock, and ends its wait, because a timer may be due now.
    pub(crate) fn clock_changed(&self) {
        self.turn_time.set(None);
        self.queued();
    }

    /// Replaces a sleep by a jump of the clock. `false`: the loop must sleep, because blocking work
    /// is in flight or there is no timer.
    pub(super) fn jump_instead_of_sleep(&self) -> io::Result<bool> {
        // This check comes first. Blocking work that ends after it wakes the loop, and the checks
        // below find what the work has done before its end.
        let is_held = self.in_flight.any();
        // Timers that are due by now should expire in this turn.
        self.now();
        if self.ask(Timeout::Zero)? > 0 || self.handle.queue().is_pending() || self.work().any() {
            return Ok(true);
        }
        if is_held || !self.jump() {
            return Ok(false);
        }
        self.now();
        self.ask(Timeout::Zero)?;
        Ok(true)
    }

    /// Replaces another event loop's sleep by a jump of the clock. Returns whether the clock has
    /// jumped. The queue must be marked asleep.
    pub(super) fn jump_instead_of_foreign_sleep(&self) -> io::Result<bool> {
        if self.in_flight.any() {
            return Ok(false);
        }
        let mut epoll = [PollFd::new(&*self.driver, PollFlags::IN)];
        let ready = retry_on_intr(|| poll(&mut epoll, Some(&Timespec::default())));
        let is_ready = ready? > 0;
        Ok(!is_ready && self.jump())
    }

    /// Moves the clock to the next timer, if there is one.
    fn jump(&self) -> bool {
        let Some(next) = self.next_moment() else { return false };
        self.clock.jump_to(next);
        self.turn_time.set(None);
        true
    }

    /// The moment to which the clock jumps: the next deadline, if a clock can reach it.
    pub(super) fn next_moment(&self) -> Option<TimerTime> {
        self.next_deadline().filter(|next| *next < TimerTime::LAST)
    }
}
