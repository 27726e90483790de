//! The blocking work that a loop's code has begun and that is not over (feature `test-util`). A
//! paused clock does not jump while there is any.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::job::Run;
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
}

impl InFlight {
    pub(crate) fn new(queue: Arc<Queue>) -> Arc<Self> {
        Arc::new(Self { calls: Mutex::new(0), none: Condvar::new(), queue })
    }

    /// Takes the lock. Nothing panics while it is held, so poisoning is ignored.
    fn calls(&self) -> MutexGuard<'_, usize> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is any work in flight? If the answer is no, wakes by work that has ended are in the loop's
    /// queue.
    pub(crate) fn any(&self) -> bool {
        *self.calls() > 0
    }

    /// Blocks until nothing is in flight.
    #[cfg(feature = "tokio")]
    pub(crate) fn wait_until_none(&self) {
        let mut calls = self.calls();
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
        if let Some(in_flight) = &here {
            *in_flight.calls() += 1;
            // If Tokio owns the sleep, the loop must check whether the sleep may continue.
            in_flight.queue.wake();
        }
        Self(here)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Some(in_flight) = &self.0 else { return };
        let mut calls = in_flight.calls();
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
