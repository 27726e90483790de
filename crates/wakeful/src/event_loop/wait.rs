//! Phase 1 of a turn: the loop asks the kernel, and sleeps or spins if nothing is runnable.

use std::io;
use std::time::{Duration, Instant};

use super::arrivals::Brought;
use super::clock::Reading;
use super::inner::Inner;
use super::may_park::MayPark;
use crate::driver::epoll::Timeout;
use crate::idle::{Holder, Idle, Next, Spinner};
use crate::sys::thread::yield_to_equals;

/// A loop that spins for ever ([`IdlePolicy::Spin`](crate::IdlePolicy::Spin)) lets threads of its
/// priority run once in so many waits: about every 20 µs.
const YIELD_EVERY: u64 = 64;

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// An event, a push, or work that was there.
    ByWork,
    /// A deadline, or a signal.
    ByNothing,
}

/// What ended a spin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spun {
    /// There is something.
    Found,
    /// The deadline, at the moment.
    UntilDeadline(u64),
    /// It does not pay any more, or somebody else needs the CPU.
    LongEnough,
}

impl Inner {
    #[inline]
    pub(super) fn wait(&self, max_wait: Option<Duration>) -> io::Result<()> {
        if max_wait == Some(Duration::ZERO) {
            if self.next_deadline().is_some() {
                // What is due by now is to expire in this turn.
                self.now();
            }
            return self.ask(Timeout::Zero).map(|_| ());
        }
        if !self.callbacks.before_park.is_empty() && !self.work().any() {
            self.run_hooks(&self.callbacks.before_park);
        }
        #[cfg(feature = "test-util")]
        if self.clock.is_paused() && self.jump_instead_of_sleep()? {
            return Ok(());
        }
        let until = max_wait.and_then(|wait| Instant::now().checked_add(wait));
        match &self.idle {
            Idle::Adapt(spinner) => self.adapt(&mut spinner.borrow_mut(), until),
            Idle::Park(_) => self.park(until, None).map(|_| ()),
            Idle::Spin => self.spin(until),
            Idle::Hold(holder) => self.hold(&mut holder.borrow_mut(), until),
        }
    }

    /// Sleeps at once, with the CPUs held while events come. Outside, so that a park without a hold
    /// pays nothing for it.
    #[inline(never)]
    fn hold(&self, holder: &mut Holder, until: Option<Instant>) -> io::Result<()> {
        if holder.is_priced() {
            holder.weigh(self.now().real);
        }
        if self.park(until, Some(&mut *holder))? == Ended::ByWork {
            holder.woken(|| self.now().real);
        }
        if holder.is_lost() {
            holder.ask_again(self.now().real);
        }
        Ok(())
    }

    /// Sleeps in the place of a spin, with the CPU held for as long as that would have
    /// lasted, or a tick.
    #[inline(never)]
    fn hold_instead(&self, spinner: &mut Spinner, until: Option<Instant>) -> io::Result<()> {
        let ended = self.park(until, spinner.holder())?;
        let now = self.now().real;
        match ended {
            Ended::ByWork => spinner.woken_instead(now),
            Ended::ByNothing => spinner.cut_short_instead(now),
        }
        Ok(())
    }

    /// Three places call it, of which one is hot: as a call it costs 37 instructions a turn.
    #[inline(always)]
    fn park(&self, until: Option<Instant>, holder: Option<&mut Holder>) -> io::Result<Ended> {
        match self.may_park() {
            MayPark::Yes => {}
            // A failed attempt to sleep costs no system call. But not twice in a row: the kernel
            // must have its turn under a flood of pushes.
            MayPark::RemoteWork if !self.skipped.replace(true) => return Ok(Ended::ByWork),
            MayPark::RemoteWork | MayPark::LocalWork => {
                return self.ask(Timeout::Zero).map(|_| Ended::ByWork);
            }
        }
        self.counters.parks.add(1);
        if let Some(sleep_observer) = self.sleep_observer.get() {
            sleep_observer.before_sleep();
        }
        let ended = self.sleep(until, holder);
        if let Some(sleep_observer) = self.sleep_observer.get() {
            sleep_observer.after_sleep();
        }
        ended
    }

    /// Until there is work, or one of the deadlines has passed.
    #[inline(always)]
    fn sleep(&self, until: Option<Instant>, mut holder: Option<&mut Holder>) -> io::Result<Ended> {
        loop {
            let silence = holder.as_mut().and_then(|holder| self.before_sleep(holder));
            let park_time = match silence {
                Some(_) => &self.counters.held_time,
                None => &self.counters.park_time,
            };
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let known = [left, self.until_next_timer()].into_iter().flatten().min();
            let timeout = [known, silence].into_iter().flatten().min();
            let events = self.ask(timeout.into())?;
            if events > 0 || self.handle.queue().is_pending() {
                self.stopwatch.idle(park_time);
                return Ok(Ended::ByWork);
            }
            if let Some(holder) = &mut holder
                && silence.is_some()
            {
                let silent = timeout != known && !self.driver.was_interrupted();
                if silent {
                    holder.release();
                    self.stopwatch.idle(park_time);
                    continue;
                }
                holder.found_nothing(self.now().real);
            }
            // Nothing: a timeout, or a signal. A signal does not end a wait that has a limit; one
            // without takes another turn, which costs nothing and is simpler.
            let signal =
                until.is_some_and(|until| Instant::now() < until) && !self.work().due_timers;
            if !signal {
                self.stopwatch.idle(park_time);
                return Ok(Ended::ByNothing);
            }
        }
    }

    /// Holds, if there is a reason. Returns how long to sleep at most then.
    #[inline(always)]
    pub(super) fn before_sleep(&self, holder: &mut Holder) -> Option<Duration> {
        let silence = holder.before_sleep();
        self.counters.hold.set(holder.shown());
        silence
    }

    /// Never asleep for others: a push costs them no system call, and is seen here by a load.
    fn spin(&self, until: Option<Instant>) -> io::Result<()> {
        if self.ask_and_look(until)? {
            return Ok(());
        }
        if let Some(sleep_observer) = self.sleep_observer.get() {
            sleep_observer.before_sleep();
        }
        let mut ended = Ok(false);
        while matches!(ended, Ok(false)) {
            std::hint::spin_loop();
            self.let_equals_run();
            ended = self.ask_and_look(until);
        }
        if let Some(sleep_observer) = self.sleep_observer.get() {
            sleep_observer.after_sleep();
        }
        self.stopwatch.idle(&self.counters.spin_time);
        ended.map(|_| ())
    }

    /// In a spin that lasts until there is work.
    ///
    /// The kernel does not take the CPU from a thread with the policy SCHED_FIFO for another one of
    /// the same priority (sched(7)). The threads of a process inherit policy and priority. If they
    /// have only one CPU, then without this none but the loop's thread would ever run: not the one
    /// that handles signals either.
    #[inline]
    pub(super) fn let_equals_run(&self) {
        if self.counters.waits.get().is_multiple_of(YIELD_EVERY) {
            yield_to_equals();
        }
    }

    /// Asks the kernel without waiting. Should a spin end?
    #[inline]
    fn ask_and_look(&self, until: Option<Instant>) -> io::Result<bool> {
        Ok(self.poll()? || self.work().any() || until.is_some_and(|until| Instant::now() >= until))
    }

    /// Spins as long as that pays, and then sleeps. A busy loop's first poll meets events; before
    /// it the loop reads the clock only if it has timers.
    #[inline(never)]
    fn adapt(&self, spinner: &mut Spinner, until: Option<Instant>) -> io::Result<()> {
        let asked = spinner.expects_soon();
        if asked && self.next_deadline().is_some() {
            // A timer expires once the kernel was asked after its deadline.
            self.now();
        }
        if asked && self.poll()? {
            return Ok(());
        }
        if !asked && self.handle.queue().is_pending() {
            return self.park(until, None).map(|_| ());
        }
        let work = self.work();
        if work.any() {
            // For a timer that came due since.
            let is_enough = asked && !work.due_timers;
            return if is_enough { Ok(()) } else { self.ask(Timeout::Zero).map(|_| ()) };
        }
        let now = self.now();
        let next = spinner.begin(now.real);
        if next == Next::Hold {
            return self.hold_instead(spinner, until);
        }
        self.counters.hold.set(spinner.hold_state());
        if next == Next::Spin {
            let deadline = self.deadline(now, until);
            let ended = self.spin_while_it_pays(spinner, deadline, || self.poll())?;
            self.stopwatch.idle(&self.counters.spin_time);
            match ended {
                Spun::Found => return Ok(()),
                Spun::UntilDeadline(now) => {
                    spinner.cut_short(now);
                    // So that the timer expires in this turn.
                    return self.ask(Timeout::Zero).map(|_| ());
                }
                Spun::LongEnough => {}
            }
        }
        spinner.sleeps();
        if self.park(until, None)? == Ended::ByWork {
            spinner.woken(self.now().real);
        }
        Ok(())
    }

    /// Spins as long as that pays, and until `deadline` at most. `poll` asks the kernel without
    /// waiting: is there anything?
    #[inline(always)]
    pub(super) fn spin_while_it_pays(
        &self,
        spinner: &mut Spinner,
        deadline: Option<u64>,
        poll: impl Fn() -> io::Result<bool>,
    ) -> io::Result<Spun> {
        loop {
            // Free when alone: 0.17 µs.
            rustix::thread::sched_yield();
            let found = poll()?;
            let now = self.now().real;
            if spinner.look(now) == Next::Sleep {
                self.counters.gave_way.add(1);
                return Ok(if found { Spun::Found } else { Spun::LongEnough });
            }
            if found {
                self.counters.spin_hits.add(1);
                spinner.hit(now);
                return Ok(Spun::Found);
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Spun::UntilDeadline(now));
            }
            if spinner.found_nothing(now) == Next::Sleep {
                self.counters.spin_misses.add(1);
                return Ok(Spun::LongEnough);
            }
        }
    }

    /// Nobody takes turns for a while: another loop may spin here, and no CPU is held.
    pub(super) fn leave_cpu(&self) {
        match &self.idle {
            Idle::Adapt(spinner) => spinner.borrow_mut().sleeps(),
            Idle::Hold(holder) => holder.borrow_mut().release(),
            Idle::Park(_) | Idle::Spin => {}
        }
    }

    /// Somebody else's loop takes a turn, or this one runs from now on.
    pub(super) fn enter_turn(&self) {
        self.with_holder(Holder::enter_turn);
    }

    /// A turn of somebody else's loop is over, and another one may not come.
    pub(super) fn leave_turn(&self) {
        self.with_holder(|holder| {
            let done = self.counters.done();
            holder.leave_turn(done);
            self.counters.hold.set(holder.shown());
        });
    }

    fn with_holder(&self, act: impl FnOnce(&mut Holder)) {
        match &self.idle {
            Idle::Adapt(spinner) => _ = spinner.borrow_mut().holder().map(act),
            Idle::Hold(holder) => act(&mut holder.borrow_mut()),
            Idle::Park(_) | Idle::Spin => {}
        }
    }

    /// Asks the kernel without waiting. Is there anything, there or in the queue?
    #[inline]
    fn poll(&self) -> io::Result<bool> {
        Ok(self.ask(Timeout::Zero)? > 0 || self.handle.queue().is_pending())
    }

    #[inline]
    pub(super) fn now(&self) -> Reading {
        let now = self.clock.read();
        self.arrivals.read(now.timers);
        now
    }

    /// When a spin has to end, on the machine's clock: the next timer, or the caller's limit.
    pub(super) fn deadline(&self, now: Reading, until: Option<Instant>) -> Option<u64> {
        let next = self.next_deadline().and_then(|next| self.clock.until(next, now.timers));
        let timer = next.map(|left| now.real.saturating_add(left.as_nanos() as u64));
        let until = until.map(|until| self.clock.real(until));
        [timer, until].into_iter().flatten().min()
    }

    #[inline(always)]
    pub(super) fn ask(&self, timeout: Timeout) -> io::Result<usize> {
        self.skipped.set(false);
        self.counters.waits.add(1);
        let events = self.driver.wait(timeout)?;
        let brought = if events >= self.driver.batch() {
            Brought::Batch { events, registered: self.driver.registered() }
        } else if events > 0 {
            Brought::All
        } else if self.driver.was_interrupted() {
            Brought::Interrupted
        } else {
            Brought::Nothing
        };
        // While the timers' clock stands still, a wait takes no time.
        let took = if self.clock.runs() { timeout } else { Timeout::Zero };
        self.arrivals.asked(took, brought);
        Ok(events)
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
