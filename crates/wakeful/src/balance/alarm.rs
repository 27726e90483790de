//! When the active loops of a group do not return from their turns, another loop is woken to stand
//! in for them.
//!
//! Only active loops get connections (except those that have stepped back). At light load this is
//! one loop. If its handler blocks, or computes for long, it takes no more connections. The other
//! loops could take them, but they sleep, and nothing wakes them. So an active loop that is awake
//! keeps postponing an alarm. If no loop has postponed it for [`PATIENCE`], the alarm rings and
//! wakes one of the sleeping loops, which finds out which loop is stuck.
//!
//! Postponing it is a system call every 10 ms; setting it after a sleep is another one. The last
//! loop that goes to sleep stops the alarm, so that no loop is woken in vain. If that loop sleeps
//! more than a hundred times a second, it does not stop the alarm, because it is back before the
//! alarm rings.
//!
//! Times are those of the CPUs' counters, which several threads compare. A counter may jump back,
//! when a virtual machine is moved or restored. So a time that lies further ahead than it can
//! (twice [`PATIENCE`]) counts as past: otherwise the alarm would be silent for as long as the jump
//! was.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::driver::epoll::Timer;
use crate::sys::clock::Clock;
use crate::sys::panics;
use crate::sys::shared_words::SharedLine;

/// How long a turn of the last awake active loop may take until another loop stands in. It is
/// longer than a loop may be silent while it spins: a spin lasts up to 16.7 ms, and the loop's last
/// report may be 10 ms older.
pub(super) const PATIENCE: Duration = Duration::from_millis(30);

/// Within this time, only one of many loops postpones the alarm.
const JUST_NOW: Duration = Duration::from_millis(5);

/// The alarm rings this much later than it should. It uses the kernel's clock, so without the
/// margin the CPU's counter might say that it rang too early.
const MARGIN: Duration = Duration::from_millis(1);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Alarm {
    timer: Arc<Timer>,
    clock: Clock,
    /// [`PATIENCE`] and [`JUST_NOW`], in ticks.
    patience: u64,
    just_now: u64,
    /// When the alarm rings, in ticks; 0: it is not set.
    due: Due,
    /// Held by the thread of this process that sets the alarm. No other thread waits for it: a
    /// thread that postpones the alarm may leave that to the holder, because the holder postpones
    /// it as well. A thread that stops the alarm checks afterwards whether it should be set again.
    setting: Mutex<()>,
}

#[derive(Debug)]
enum Due {
    OfThisProcess(AtomicU64),
    Shared(SharedLine<1>),
}

impl Due {
    fn load(&self) -> u64 {
        match self {
            Self::OfThisProcess(due) => due.load(Ordering::SeqCst),
            Self::Shared(due) => due[0].load(Ordering::SeqCst) as u64,
        }
    }

    fn store(&self, ticks: u64) {
        match self {
            Self::OfThisProcess(due) => due.store(ticks, Ordering::SeqCst),
            Self::Shared(due) => due[0].store(ticks as usize, Ordering::SeqCst),
        }
    }
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self::of(Arc::new(Timer::new()?), Due::OfThisProcess(AtomicU64::new(0))))
    }

    /// The same alarm for several processes. Their clocks have the same zero.
    pub(super) fn shared(timer: Arc<Timer>, due: SharedLine<1>) -> Self {
        Self::of(timer, Due::Shared(due))
    }

    fn of(timer: Arc<Timer>, due: Due) -> Self {
        let clock = Clock::get();
        Self {
            timer,
            clock,
            patience: clock.ticks(PATIENCE),
            just_now: clock.ticks(JUST_NOW),
            due,
            setting: Mutex::new(()),
        }
    }

    /// The time in ticks, never 0.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.clock.now().max(1)
    }

    /// Is a loop stuck that reported last at `heard`?
    pub(super) fn is_over(&self, heard: u64, now: u64) -> bool {
        !self.is_ahead(heard.wrapping_add(self.patience), now)
    }

    /// Is `at` in the future, but not further than possible? The counters of two CPUs may differ a
    /// little.
    fn is_ahead(&self, at: u64, now: u64) -> bool {
        at > now && at - now <= 2 * self.patience
    }

    pub(super) fn timer(&self) -> &Timer {
        &self.timer
    }

    /// Is the alarm set, and has it not rung yet?
    pub(super) fn is_set(&self, now: u64) -> bool {
        self.is_ahead(self.due.load(), now)
    }

    /// Has the alarm rung without a loop checking why?
    pub(super) fn has_rung(&self, now: u64) -> bool {
        let due = self.due.load();
        due != 0 && !self.is_ahead(due, now)
    }

    /// Postpones the alarm to [`PATIENCE`] from now, or leaves it a little earlier if another loop
    /// has just postponed it.
    pub(super) fn push(&self, now: u64) {
        let due = now.wrapping_add(self.patience);
        let set = self.due.load();
        if !self.is_ahead(set, now) || due.saturating_sub(set) > self.just_now {
            self.set(due, Some(PATIENCE + MARGIN));
        }
    }

    /// Stops the alarm.
    pub(super) fn stop(&self) {
        self.set(0, None);
        // Another process may have set the alarm between the two calls.
        if self.due.load() != 0 {
            self.set(self.now().wrapping_add(self.patience), Some(PATIENCE + MARGIN));
        }
    }

    fn set(&self, due: u64, after: Option<Duration>) {
        let Some(setting) = panics::try_lock(&self.setting) else { return };
        self.due.store(due);
        let armed = self.timer.arm(after);
        drop(setting);
        if let Err(error) = armed {
            panics::log!(debug, %error, "the alarm of a group cannot be set");
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    const START: u64 = 1 << 40;

    fn pushed_at(now: u64) -> Alarm {
        let alarm = Alarm::new().unwrap();
        alarm.push(now);
        alarm
    }

    #[test]
    fn an_alarm_is_set_until_it_rings() {
        let alarm = pushed_at(START);
        let rings = START + alarm.patience;
        assert!(alarm.is_set(START) && alarm.is_set(rings - 1) && !alarm.is_set(rings));
        assert!(!alarm.has_rung(rings - 1) && alarm.has_rung(rings));
        // Not every push sets the alarm.
        alarm.push(START + alarm.just_now);
        assert!(alarm.has_rung(rings));
        alarm.push(START + alarm.just_now + 1);
        assert!(!alarm.has_rung(rings));
        alarm.stop();
        assert!(!alarm.is_set(START) && !alarm.has_rung(rings));
    }

    #[test]
    fn after_a_jump_back_the_alarm_has_rung_and_is_set_anew() {
        let alarm = pushed_at(START);
        let now = START / 2;
        assert!(alarm.has_rung(now) && !alarm.is_set(now));
        alarm.push(now);
        assert!(alarm.is_set(now) && alarm.has_rung(now + alarm.patience));
        // The counter of another CPU that is a little behind is no jump.
        let behind = now - alarm.patience / 2;
        assert!(alarm.is_set(behind) && !alarm.has_rung(behind));
    }

    #[test]
    fn a_loop_that_was_heard_of_before_a_jump_back_is_stuck() {
        let alarm = Alarm::new().unwrap();
        let over = |now| alarm.is_over(START, now);
        assert!(!over(START) && !over(START + alarm.patience - 1));
        assert!(over(START + alarm.patience) && over(START / 2));
        assert!(!over(START - alarm.patience / 2), "another CPU that is a little behind");
    }
}
