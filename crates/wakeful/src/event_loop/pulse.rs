//! A look at the loop now and then, at the end of a turn. A timer would wake the loop; this never does, and costs a turn one comparison.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::Inner;
use crate::driver::ticks::Clock;

/// How the loop spent its time since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) busy: Duration,
    pub(crate) idle: Duration,
}

type Look = dyn Fn(Spent);

pub(super) struct Pulse {
    clock: Clock,
    /// In ticks; never, if nobody looks.
    due: Cell<u64>,
    every: Cell<u64>,
    /// When the last look was, and how long the loop had been idle by then.
    last: Cell<u64>,
    idle: Cell<u64>,
    look: RefCell<Option<Rc<Look>>>,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self {
            clock: Clock::get(),
            due: Cell::new(u64::MAX),
            every: Cell::new(0),
            last: Cell::new(0),
            idle: Cell::new(0),
            look: RefCell::new(None),
        }
    }

    #[inline]
    pub(super) fn is_due(&self, now: u64) -> bool {
        now >= self.due.get()
    }

    /// The loop ends.
    pub(super) fn end(&self) {
        self.due.set(u64::MAX);
        let look = self.look.take();
        drop(look);
    }
}

impl Inner {
    /// Has `look` called at the end of a turn, when this much time has passed since the last call. A loop that sleeps calls it later.
    pub(super) fn look_every(&self, time: Duration, look: impl Fn(Spent) + 'static) {
        let (pulse, now) = (&self.pulse, self.stopwatch.last());
        pulse.every.set(pulse.clock.ticks(time));
        pulse.due.set(now.saturating_add(pulse.every.get()));
        pulse.last.set(now);
        pulse.idle.set(self.counters.idle_ticks());
        let before = pulse.look.replace(Some(Rc::new(look)));
        drop(before);
    }

    #[cold]
    pub(super) fn look(&self, now: u64) {
        let pulse = &self.pulse;
        pulse.due.set(now.saturating_add(pulse.every.get()));
        let total = now.saturating_sub(pulse.last.replace(now));
        let idle_until_now = self.counters.idle_ticks();
        let idle = idle_until_now.wrapping_sub(pulse.idle.replace(idle_until_now)).min(total);
        // Not while borrowed: it is anybody's code.
        let look = pulse.look.borrow().clone();
        if let Some(look) = look {
            let (busy, idle) = (pulse.clock.duration(total - idle), pulse.clock.duration(idle));
            look(Spent { busy, idle });
        }
    }
}
