//! What a loop with Tokio as its guest does when neither has anything to do: its idle policy, in
//! Tokio's park hooks.
//!
//! Tokio calls [`before_park`] when it has nothing to run, and then sleeps unless the hook wakes
//! the root future. The hook spins as the loop itself does, but it asks a duplicate of *Tokio's*
//! epoll whether there are events. Tokio's epoll contains the loop's. The hook takes no events from
//! it. When an event has come, or Tokio's timers have not been checked for a while ([`ROUND`]), the
//! hook wakes the root future, and so Tokio asks its epoll without waiting. The queue is marked
//! asleep meanwhile, so a push from another thread rings the bell.
//!
//! Each look of a spin counts as a wait of the loop, whether the hook asks or Tokio does. A sleep
//! counts only as a park. The waits that Tokio makes between tasks are not counted.
//!
//! Without the duplicate (no `/proc`) a loop that adapts sleeps at once.
//!
//! A hold ends by the timer in the loop's epoll. It is not armed anew for each sleep, so a silence
//! is noticed within twice its length. Tokio's timers are events for it, because Tokio does not say
//! what has ended its wait.

use std::io;
use std::time::Duration;

use super::super::clock::Reading;
use super::super::current::current;
use super::super::guest_idle::{Counts, Last};
use super::super::inner::Inner;
use super::super::wait::Spun;
use crate::idle::{Holder, Idle, Next, Spinner};

/// How often Tokio's timers are checked during a spin, in nanoseconds. They are exact to a
/// millisecond.
const ROUND: u64 = 250_000;

/// The timer in the epoll may seem to fire early by less than this, in nanoseconds, because another
/// CPU, whose clock is ahead of this one's, may handle it.
const CLOCKS_DIFFER: u64 = 5_000;

/// What ended a wait of Tokio's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Work,
    Timer,
    /// The wait has not ended, or a signal has ended it.
    Nothing,
}

/// After this hook Tokio checks whether there is work.
pub(super) fn before_park() {
    let Some(inner) = current() else { return };
    if inner.handle.process().is_forked() {
        // The root future reports to the child that it must not continue.
        inner.local.wake_host();
        return;
    }
    // Tokio advances a clock that stands still only where it would sleep.
    if !inner.clock.runs() {
        return inner.sleeps_in_tokio(Last::Slept);
    }
    match &inner.idle {
        Idle::Adapt(spinner) if inner.guest_idle.epoll.is_some() => {
            inner.adapt_in_tokio(&mut spinner.borrow_mut());
        }
        Idle::Park(_) | Idle::Adapt(_) => inner.sleeps_in_tokio(Last::Slept),
        Idle::Spin => {
            inner.tell_of_sleep();
            inner.stopwatch.skip();
            inner.counters.waits.add(1);
            inner.let_equals_run();
            inner.asks_tokio(Last::Spun);
        }
        Idle::Hold(holder) => inner.hold_in_tokio(&mut holder.borrow_mut()),
    }
}

pub(super) fn after_park() {
    let Some(inner) = current() else { return };
    let idle = &inner.guest_idle;
    let counters = &inner.counters;
    let last = idle.last.get();
    let spun = matches!(last, Last::Nothing | Last::Spun);
    match last {
        Last::Nothing => inner.stopwatch.skip(),
        Last::Spun => inner.stopwatch.idle(&counters.spin_time),
        Last::Held => inner.stopwatch.idle(&counters.held_time),
        Last::Slept => inner.stopwatch.idle(&counters.park_time),
    }
    if !spun || matches!(inner.idle, Idle::Spin) {
        inner.tell_of_return();
    }
    if matches!(inner.idle, Idle::Adapt(_) | Idle::Hold(_)) {
        idle.back.set(inner.now().real);
        idle.counts.set(inner.counts());
    }
}

impl Inner {
    /// The same as [`wait`](super::super::wait) does, but Tokio asks the kernel.
    fn adapt_in_tokio(&self, spinner: &mut Spinner) {
        let now = self.now();
        let back = self.guest_idle.back.get();
        let ended = self.ended();
        let next = match (self.guest_idle.last.take(), ended) {
            (Last::Spun, Ended::Nothing) => Next::Spin,
            (last, ended) => {
                match (last, ended) {
                    (Last::Spun, Ended::Work) => {
                        self.counters.spin_hits.add(1);
                        spinner.hit(back);
                    }
                    (Last::Spun, _) => spinner.cut_short(back),
                    (Last::Held, Ended::Work) => spinner.woken_instead(back),
                    (Last::Held, _) => spinner.cut_short_instead(back),
                    (Last::Slept, Ended::Work) => spinner.woken(back),
                    (Last::Slept | Last::Nothing, _) => {}
                }
                // There is work already, so this is no gap between two events. Tokio also rings the
                // bell for a timer that one of its tasks sets.
                if spinner.expects_soon() && self.has_something_for_tokio().unwrap_or(false) {
                    return self.asks_tokio(Last::Nothing);
                }
                spinner.begin(now.real)
            }
        };
        if next == Next::Hold {
            let silence = spinner.holder().and_then(|holder| self.before_sleep(holder));
            return self.sleeps_held_in_tokio(now.real, silence, Last::Held);
        }
        self.counters.hold.set(spinner.hold_state());
        if next == Next::Spin && self.spin_in_tokio(spinner, now) {
            return;
        }
        spinner.sleeps();
        self.sleeps_held_in_tokio(now.real, None, Last::Slept);
    }

    /// Returns `false` if the loop should sleep now.
    fn spin_in_tokio(&self, spinner: &mut Spinner, now: Reading) -> bool {
        let timer = self.deadline(now, None);
        let armed = self.guest_idle.armed.get().filter(|armed| *armed > now.real);
        let round = armed.unwrap_or(u64::MAX).min(now.real + ROUND);
        let deadline = timer.map_or(round, |timer| timer.min(round));
        self.stopwatch.skip();
        // An event that is found at the deadline may be the timer in the epoll, which does not
        // count as an event.
        let timer_fires = deadline.saturating_sub(CLOCKS_DIFFER);
        let look = || {
            let found = self.has_something_for_tokio()? && self.now().real < timer_fires;
            Ok(found || self.handle.queue().is_pending())
        };
        let ended = self.spin_while_it_pays(spinner, Some(deadline), look);
        self.stopwatch.idle(&self.counters.spin_time);
        match ended {
            Ok(Spun::Found) => self.asks_tokio(Last::Nothing),
            Ok(Spun::UntilDeadline(now)) if timer.is_some_and(|timer| now >= timer) => {
                spinner.cut_short(now);
                self.asks_tokio(Last::Nothing);
            }
            Ok(Spun::UntilDeadline(_)) => self.asks_tokio(Last::Spun),
            Ok(Spun::LongEnough) | Err(_) => return false,
        }
        true
    }

    /// Are there events for Tokio, or for the loop?
    fn has_something_for_tokio(&self) -> io::Result<bool> {
        self.counters.waits.add(1);
        self.guest_idle.has_something()
    }

    fn hold_in_tokio(&self, holder: &mut Holder) {
        let now = self.now();
        let ended = self.ended();
        match (self.guest_idle.last.take(), ended) {
            (Last::Nothing, _) => {}
            (_, Ended::Work) => holder.woken(|| self.guest_idle.back.get()),
            _ => holder.found_nothing(self.guest_idle.back.get()),
        }
        holder.weigh(now.real);
        if holder.is_lost() {
            holder.ask_again(now.real);
        }
        let silence = self.before_sleep(holder);
        let last = if silence.is_some() { Last::Held } else { Last::Slept };
        self.sleeps_held_in_tokio(now.real, silence, last);
    }

    /// Has Tokio ask its epoll without waiting, and check its timers.
    fn asks_tokio(&self, last: Last) {
        self.guest_idle.last.set(last);
        self.guest_idle.is_round.set(true);
        self.local.wake_host();
    }

    /// Sleeps for `silence` at most, if that is known.
    fn sleeps_held_in_tokio(&self, now: u64, silence: Option<Duration>, last: Last) {
        let until = silence.map(|silence| now.saturating_add(silence.as_nanos() as u64));
        if self.arm_timer(until).is_err() {
            // The root future gets the same error, and returns it.
            self.local.wake_host();
        }
        self.sleeps_in_tokio(last);
    }

    fn sleeps_in_tokio(&self, last: Last) {
        self.guest_idle.last.set(last);
        self.counters.parks.add(1);
        self.tell_of_sleep();
        self.stopwatch.skip();
    }

    fn tell_of_sleep(&self) {
        if let Some(sleep_observer) = self.sleep_observer.get() {
            sleep_observer.before_sleep();
        }
    }

    fn tell_of_return(&self) {
        if let Some(sleep_observer) = self.sleep_observer.get()
            && !self.handle.process().is_forked()
        {
            sleep_observer.after_sleep();
        }
    }

    fn counts(&self) -> Counts {
        let counters = &self.counters;
        Counts {
            waits: counters.waits.get(),
            brought: counters.events.get().wrapping_add(counters.remote.get()),
            timers: counters.timers.get(),
        }
    }

    /// What ended Tokio's last wait, as far as that is known.
    fn ended(&self) -> Ended {
        let (then, now) = (self.guest_idle.counts.get(), self.counts());
        let slept = !matches!(self.guest_idle.last.get(), Last::Nothing | Last::Spun);
        if now.brought != then.brought {
            Ended::Work
        } else if now.timers != then.timers {
            Ended::Timer
        } else if slept && now.waits == then.waits {
            // The loop has got nothing, so the wait ended for Tokio's own work.
            Ended::Work
        } else {
            Ended::Nothing
        }
    }

    /// Makes the epoll readable when the next timer is due, or at `until`, unless the timer is
    /// already armed for an earlier moment. A timer that fires early costs a turn in which nothing
    /// is due. Most timers are limits, which are never reached.
    pub(super) fn arm_timer(&self, until: Option<u64>) -> io::Result<()> {
        let now = self.now();
        let Some(next) = [self.deadline(now, None), until].into_iter().flatten().min() else {
            return Ok(());
        };
        let now = now.real;
        let armed = &self.guest_idle.armed;
        if armed.get().is_some_and(|armed| is_in_time(armed, now, next)) {
            return Ok(());
        }
        self.driver.arm_timer(Some(Duration::from_nanos(next.saturating_sub(now))))?;
        armed.set(Some(next));
        Ok(())
    }
}

/// Will the timer that is armed for `armed` fire by `next`? If `armed` is hardly later than `now`,
/// the timer may have fired already.
fn is_in_time(armed: u64, now: u64, next: u64) -> bool {
    armed > now + CLOCKS_DIFFER && armed <= next
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_another_cpu_s_clock_made_fire_early_is_armed_again() {
        let armed = 1_000_000_000;
        assert!(is_in_time(armed, 0, armed));
        assert!(!is_in_time(armed, 0, armed - 1), "it is too late for an earlier timer");
        for early in [0, 1, CLOCKS_DIFFER] {
            assert!(!is_in_time(armed, armed - early, armed), "{early} ns");
        }
    }
}
