//! A periodic call (a *look*) at the end of a turn. A timer would wake the loop. This never wakes
//! it, and costs a turn one comparison.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::sys::clock::Clock;
use crate::sys::fork_check::Process;
use crate::sys::panics;

/// How the loop spent its time since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) busy: Duration,
    pub(crate) idle: Duration,
}

type Look = dyn Fn(Spent);

pub(super) struct Pulse {
    clock: Clock,
    /// The time between two looks, in ticks; `u64::MAX` if there is none.
    every: Cell<u64>,
    /// The time of the last look, and how long the loop had been idle by then.
    last: Cell<u64>,
    idle: Cell<u64>,
    look: RefCell<Option<Rc<Look>>>,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self {
            clock: Clock::get(),
            every: Cell::new(u64::MAX),
            last: Cell::new(0),
            idle: Cell::new(0),
            look: RefCell::new(None),
        }
    }

    /// Is a look due? This is also `true` if the last look seems to lie ahead, because the
    /// difference wraps then. That happens if the counter of this CPU has jumped back (because a
    /// virtual machine was moved or restored), or is behind that of the CPU of the last look. The
    /// look then stores its own time.
    #[inline]
    pub(super) fn is_due(&self, now: u64) -> bool {
        now.wrapping_sub(self.last.get()) >= self.every.get()
    }

    /// Has `look` called again and again, first when this much time has passed since `now`. `idle`
    /// is how long the loop has been idle so far. Both are in ticks.
    pub(super) fn begin(
        &self,
        time: Duration,
        now: u64,
        idle: u64,
        look: impl Fn(Spent) + 'static,
    ) {
        self.every.set(self.clock.ticks(time));
        self.last.set(now);
        self.idle.set(idle);
        let before = self.look.replace(Some(Rc::new(look)));
        drop(before);
    }

    /// Calls the function, because a look is due. `idle` is the same as for [`begin`](Self::begin).
    #[cold]
    pub(super) fn look(&self, now: u64, idle: u64) {
        let total = now.saturating_sub(self.last.replace(now));
        let idle = idle.wrapping_sub(self.idle.replace(idle)).min(total);
        // `look` is user code, so nothing is borrowed while it runs.
        let look = self.look.borrow().clone();
        if let Some(look) = look {
            let (busy, idle) = (self.clock.duration(total - idle), self.clock.duration(idle));
            panics::contain(|| look(Spent { busy, idle }));
        }
    }

    /// Drops the function at the end of the loop. In a forked child of `process` it is leaked.
    pub(super) fn end(&self, process: Process) {
        self.every.set(u64::MAX);
        let look = self.look.take();
        process.each_unless_forked(look, drop);
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::EventLoop;
    use crate::event_loop::current;

    #[test]
    fn a_look_that_panics_ends_no_turn_and_the_next_one_comes() {
        let mut event_loop = EventLoop::new().unwrap();
        let looks = Rc::new(Cell::new(0));
        let looked = looks.clone();
        event_loop.look_every(Duration::ZERO, move |_| {
            looked.set(looked.get() + 1);
            panic!("on purpose");
        });
        for _ in 0..3 {
            event_loop.turn(Some(Duration::ZERO)).unwrap();
        }
        assert_eq!((looks.get(), event_loop.handle().metrics().panics), (3, 3));
    }

    /// Each turn finds a ring and nothing to do, so there is neither a poll nor a sleep that would
    /// make a stamp.
    #[test]
    fn turns_without_work_have_their_looks_too() {
        let event_loop = EventLoop::new().unwrap();
        let looks = Rc::new(Cell::new(0));
        let looked = looks.clone();
        event_loop.look_every(Duration::from_nanos(1), move |_| looked.set(looked.get() + 1));
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let question = eventfd(0, flags).unwrap();
        event_loop.inner.driver.watch_questions(question.as_fd()).unwrap();
        let _entered = current::enter(&event_loop.inner);
        for _ in 0..100 {
            rustix::io::write(&question, &1_u64.to_ne_bytes()).unwrap();
            event_loop.inner.turn(Some(Duration::from_secs(1))).unwrap();
        }
        assert!(looks.get() >= 99, "{} looks", looks.get());
    }

    #[test]
    fn a_look_is_due_after_its_time_and_when_the_clock_has_jumped_back() {
        let pulse = Pulse::new();
        for now in [0, 1, u64::MAX - 1] {
            assert!(!pulse.is_due(now), "nobody looks");
        }
        pulse.every.set(100);
        pulse.last.set(5_000);
        let due = [5_000, 5_099, 5_100, u64::MAX].map(|now| pulse.is_due(now));
        assert_eq!(due, [false, false, true, true]);
        assert!([0, 1, 4_000, 4_999].iter().all(|now| pulse.is_due(*now)));
        // The next look counts from there.
        pulse.last.set(4_000);
        assert!(!pulse.is_due(4_099) && pulse.is_due(4_100));
    }
}
