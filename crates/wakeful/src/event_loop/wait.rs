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

/// A loop that spins for ever ([`IdlePolicy::Spin`](crate::IdlePolicy::Spin)) yields once in this
/// many waits to threads of its priority: about every 20 µs.
const YIELD_EVERY: u64 = 64;

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// An event, a push, or work that was there already.
    ByWork,
    /// A deadline, or a signal.
    ByNothing,
}

/// What ended a spin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spun {
    /// An event or work was found.
    Found,
    /// The deadline has passed. The value is the present moment.
    UntilDeadline(u64),
    /// Spinning does not pay any more, or another thread needs the CPU.
    LongEnough,
}

impl Inner {
    #[inline]
    pub(super) fn wait(&self, max_wait: Option<Duration>) -> io::Result<()> {
        if max_wait == Some(Duration::ZERO) {
            if self.next_deadline().is_some() {
                // Timers that are due by now should expire in this turn.
                self.now();
            }
            return self.ask(Timeout::Zero).map(|_| ());
        }
        if !self.callbacks.before_park.is_empty() && !self.work().any() {
            // If a hook has forked, the child must not take events that are its parent's.
            self.run_hooks(&self.callbacks.before_park)?;
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

    /// Sleeps at once, and holds the CPUs while events come. This is a separate function, so that a
    /// park without a hold does not pay for it.
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

    /// Sleeps instead of spinning, and holds the CPU for as long as the spin would have lasted, or
    /// for a tick.
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

    /// This is inlined although three places call it, because one of them is hot, and a call costs
    /// 37 instructions a turn.
    #[inline(always)]
    fn park(&self, until: Option<Instant>, holder: Option<&mut Holder>) -> io::Result<Ended> {
        let next_timer = self.until_next_timer();
        match self.may_park_before(next_timer) {
            MayPark::Yes => {}
            // A failed attempt to sleep makes no system call. But the next one in a row does,
            // because under a flood of pushes the loop must still ask the kernel.
            MayPark::RemoteWork if !self.skipped.replace(true) => return Ok(Ended::ByWork),
            MayPark::RemoteWork | MayPark::LocalWork => {
                return self.ask(Timeout::Zero).map(|_| Ended::ByWork);
            }
        }
        self.counters.parks.add(1);
        if let Some(sleep_observer) = self.sleep_observer.get() {
            sleep_observer.before_sleep();
        }
        let ended = self.sleep(until, next_timer, holder);
        if let Some(sleep_observer) = self.sleep_observer.get() {
            sleep_observer.after_sleep();
        }
        ended
    }

    /// Sleeps until there is work, or one of the deadlines has passed.
    #[inline(always)]
    fn sleep(
        &self,
        until: Option<Instant>,
        mut next_timer: Option<Duration>,
        mut holder: Option<&mut Holder>,
    ) -> io::Result<Ended> {
        loop {
            let silence = holder.as_mut().and_then(|holder| {
                let silence = self.before_sleep(holder);
                // Beginning or ending a hold takes time.
                next_timer = self.until_next_timer();
                silence
            });
            let park_time = match silence {
                Some(_) => &self.counters.held_time,
                None => &self.counters.park_time,
            };
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let known = [left, next_timer].into_iter().flatten().min();
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
            // There is neither work nor an event: a timeout or a signal ended the wait. A signal
            // does not end a sleep that has a limit. After a signal, a sleep without a limit
            // returns, and the loop takes another turn, which costs nothing and is simpler.
            let signal =
                until.is_some_and(|until| Instant::now() < until) && !self.work().due_timers;
            if !signal {
                self.stopwatch.idle(park_time);
                return Ok(Ended::ByNothing);
            }
            next_timer = self.until_next_timer();
        }
    }

    /// Holds the CPUs, if there is a reason. Returns the maximum sleep in that case.
    #[inline(always)]
    pub(super) fn before_sleep(&self, holder: &mut Holder) -> Option<Duration> {
        let silence = holder.before_sleep();
        self.counters.hold.set(holder.shown());
        silence
    }

    /// Spins until there is work. The queue is never marked asleep meanwhile, so a push needs no
    /// system call, and this loop sees it by a load.
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

    /// Yields the CPU now and then in a spin that lasts until there is work.
    ///
    /// The kernel does not take the CPU from a thread with the policy SCHED_FIFO for another one of
    /// the same priority (sched(7)). The threads of a process inherit policy and priority. If they
    /// have only one CPU, only the loop's thread would ever run without this, and not even the
    /// thread that handles signals.
    #[inline]
    pub(super) fn let_equals_run(&self) {
        if self.counters.waits.get().is_multiple_of(YIELD_EVERY) {
            yield_to_equals();
        }
    }

    /// Asks the kernel without waiting. Returns whether the spin should end.
    #[inline]
    fn ask_and_look(&self, until: Option<Instant>) -> io::Result<bool> {
        Ok(self.poll()? || self.work().any() || until.is_some_and(|until| Instant::now() >= until))
    }

    /// Spins as long as that pays, and then sleeps. In a busy loop the first poll usually finds
    /// events. Before it, the loop reads the clock only if it has timers.
    #[inline(never)]
    fn adapt(&self, spinner: &mut Spinner, until: Option<Instant>) -> io::Result<()> {
        let asked = spinner.expects_soon();
        if asked && self.next_deadline().is_some() {
            // A timer expires only after the kernel was asked after its deadline.
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
            // The kernel is asked again for a timer that came due since.
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
                    // The kernel is asked, so that the timer expires in this turn.
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
    /// waiting, and returns whether there is anything to do.
    #[inline(always)]
    pub(super) fn spin_while_it_pays(
        &self,
        spinner: &mut Spinner,
        deadline: Option<u64>,
        poll: impl Fn() -> io::Result<bool>,
    ) -> io::Result<Spun> {
        loop {
            // Yielding costs 0.17 µs if no other thread wants the CPU.
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

    /// Called when the loop takes no turns for a while. Another loop may spin on this CPU, and no
    /// CPU is held.
    pub(super) fn leave_cpu(&self) {
        match &self.idle {
            Idle::Adapt(spinner) => spinner.borrow_mut().sleeps(),
            Idle::Hold(holder) => holder.borrow_mut().release(),
            Idle::Park(_) | Idle::Spin => {}
        }
    }

    /// Called when another event loop starts to drive a turn, or when this loop starts to run.
    pub(super) fn enter_turn(&self) {
        self.with_holder(Holder::enter_turn);
    }

    /// Called after a turn that another event loop drove. There may be no further turn, so another
    /// loop may spin on this CPU.
    pub(super) fn leave_turn(&self) {
        if let Idle::Adapt(spinner) = &self.idle {
            spinner.borrow_mut().gives_up_cpu();
        }
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

    /// Asks the kernel without waiting. Returns whether there is an event, or work in the queue.
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

    /// When a spin must end, on the machine's clock: at the next timer, or at the caller's limit.
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
            // There may be events of high-priority sockets before a batch.
            Brought::Batch { events: self.driver.batch(), most: self.driver.most_ready() }
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
