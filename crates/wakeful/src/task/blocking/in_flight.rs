//! The blocking work that a loop's code has begun and that is not over (feature `test-util`). A
//! paused clock does not jump while there is any.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::job::Run;
use crate::sys::fork_check::ProcessMark;
use crate::task::Queue;

thread_local! {
    /// The record of the loop that runs on this thread.
    static HERE: RefCell<Option<Arc<InFlight>>> = const { RefCell::new(None) };
}

/// The number of calls in flight. See the [module](self).
pub(crate) struct InFlight {
    calls: Mutex<usize>,
    none: Condvar,
    queue: Arc<Queue>,
    /// In a forked child nothing is counted: a thread of the parent may have held the lock.
    home: ProcessMark,
}

impl InFlight {
    pub(crate) fn new(queue: Arc<Queue>) -> Arc<Self> {
        Arc::new(Self {
            calls: Mutex::new(0),
            none: Condvar::new(),
            queue,
            home: ProcessMark::new(),
        })
    }

    /// Takes the lock. Nothing panics while it is held, so poisoning is ignored. `None`: this is a
    /// forked child.
    fn calls(&self) -> Option<MutexGuard<'_, usize>> {
        if self.home.is_forked() {
            return None;
        }
        Some(self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Is any work in flight? If the answer is no, wakes by work that has ended are in the loop's
    /// queue.
    pub(crate) fn any(&self) -> bool {
        self.calls().is_some_and(|calls| *calls > 0)
    }

    /// Blocks until nothing is in flight.
    #[cfg(feature = "tokio")]
    pub(crate) fn wait_until_none(&self) {
        let Some(mut calls) = self.calls() else { return };
        while *calls > 0 {
            calls = self.none.wait(calls).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Until the guard is dropped, work that code of this thread begins belongs to this loop.
    pub(crate) fn enter(self: &Arc<Self>) -> Entered<'_> {
        let outer = HERE.try_with(|here| here.replace(Some(self.clone()))).ok().flatten();
        Entered { outer, _in_flight: PhantomData }
    }
}

/// The guard of [`InFlight::enter`].
pub(crate) struct Entered<'a> {
    outer: Option<Arc<InFlight>>,
    _in_flight: PhantomData<&'a InFlight>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let left = HERE.try_with(|here| here.replace(self.outer.take()));
        drop(left);
    }
}

/// A piece of blocking work of this thread's loop, if one runs here. It is over when this is
/// dropped, on any thread.
pub(super) struct Call(Option<Arc<InFlight>>);

impl Call {
    pub(super) fn begin() -> Self {
        let here = HERE.try_with(|here| here.borrow().clone()).ok().flatten();
        let here = here.filter(|in_flight| {
            let Some(mut calls) = in_flight.calls() else { return false };
            *calls += 1;
            true
        });
        if let Some(in_flight) = &here {
            // If Tokio owns the sleep, the loop must check whether the sleep may continue.
            in_flight.queue.wake();
        }
        Self(here)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Some(in_flight) = &self.0 else { return };
        let Some(mut calls) = in_flight.calls() else { return };
        *calls -= 1;
        if *calls == 0 {
            in_flight.none.notify_all();
        }
        drop(calls);
        // The loop may be asleep only because of this work.
        in_flight.queue.wake();
    }
}

/// A job for the pool, together with its call. The pool drops it when it has run, or when it is
/// taken off the queue.
pub(super) struct Counted {
    job: Arc<dyn Run>,
    _call: Call,
}

impl Counted {
    pub(super) fn new(job: Arc<dyn Run>) -> Self {
        Self { job, _call: Call::begin() }
    }
}

impl Run for Counted {
    fn run(&self, is_forked: &dyn Fn() -> bool) {
        self.job.run(is_forked);
    }

    fn wake_waiter(&self) {
        self.job.wake_waiter();
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;
    use crate::driver::bell::LoopBell;

    #[test]
    fn in_a_forked_child_nothing_is_counted_and_no_lock_is_taken() {
        let mut in_flight = InFlight::new(Arc::new(Queue::new(LoopBell::Counting(Arc::default()))));
        Arc::get_mut(&mut in_flight).unwrap().home = ProcessMark::of_parent();
        let _held = in_flight.calls.lock().unwrap();
        let _entered = in_flight.enter();
        assert!(Call::begin().0.is_none());
        drop(Call(Some(in_flight.clone())));
        assert!(!in_flight.any());
    }
}
