//! A loop whose timers' clock is paused (feature `test-util`): where it would sleep, with nothing
//! ready, the clock jumps to the next timer instead.
//!
//! What is ready goes before: tasks, callbacks, posts, and what the kernel has. Blocking work in
//! flight has the loop sleep as ever, without a look at timers. A socket that nobody has written to
//! holds nothing up.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

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

    /// See [`time::advance`](crate::time::advance). `false`: it is Tokio's to move.
    pub(crate) fn advance_clock(&self, duration: Duration) -> Result<bool, Refusal> {
        // At its last moment all timers would be due, and sleeps behind it would find that they are
        // not over, again and again.
        let later = self.clock.now().checked_add(duration);
        let fits = later.is_some_and(|later| self.clock.timer_time(later) < TimerTime::LAST);
        if !fits && self.clock.is_paused() {
            return Err("the loop's clock cannot be advanced so far");
        }
        let moved = self.clock.source().advance(duration)?;
        self.clock_changed();
        Ok(moved)
    }

    /// What the loop had read of its clock is nothing to go by, and what it sleeps for may be due.
    pub(crate) fn clock_changed(&self) {
        self.turn_time.set(None);
        self.queued();
    }

    /// In the place of a sleep. `false`: the loop has to sleep, because blocking work is in flight
    /// or there is no timer.
    pub(super) fn jump_instead_of_sleep(&self) -> io::Result<bool> {
        // First: work that ends behind this look wakes the loop, and what it has done before that
        // is found below.
        let is_held = self.in_flight.any();
        // What is due by now is to expire in this turn.
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

    /// In the place of another loop's sleep: has the clock jumped? The queue says asleep.
    pub(super) fn jump_instead_of_foreign_sleep(&self) -> io::Result<bool> {
        if self.in_flight.any() {
            return Ok(false);
        }
        let mut epoll = [PollFd::new(&*self.driver, PollFlags::IN)];
        let is_ready = poll(&mut epoll, Some(&Timespec::default()))? > 0;
        Ok(!is_ready && self.jump())
    }

    /// Moves the clock to the next timer, if there is one.
    fn jump(&self) -> bool {
        let Some(next) = self.next_moment() else { return false };
        self.clock.jump_to(next);
        self.turn_time.set(None);
        true
    }

    /// Where the clock jumps to: the next deadline, if it can come.
    pub(super) fn next_moment(&self) -> Option<TimerTime> {
        self.next_deadline().filter(|next| *next < TimerTime::LAST)
    }
}
