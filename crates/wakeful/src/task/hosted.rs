//! A loop whose sleep belongs to another runtime, its host, on the same thread.
//!
//! The loop takes its turns within the host's root future. Between two polls of that, the host's
//! own tasks run on this thread, and the loop's queue says asleep, so that other threads ring. What
//! this thread makes runnable meanwhile needs no system call: it goes to the ready list
//! (`local::push_hosted`), and the root future is woken by the host's waker. The host looks at that
//! before it sleeps.
//!
//! The order in which this thread sent things stays: the queue was empty when it began to say
//! asleep, so whatever this thread sent before is in the ready list.

use std::cell::{Cell, OnceCell};
use std::task::Waker;

/// Wakes the host's root future.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Known from the first poll of the root future on, and the same in each of them.
    waker: OnceCell<Waker>,
    runs: Cell<bool>,
}

impl Host {
    /// Does the host run the loop? Returns what it was before.
    pub(super) fn set_runs(&self, runs: bool) -> bool {
        self.runs.replace(runs)
    }

    #[inline]
    pub(super) fn know(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// Has the root future polled again. `false`: no host runs this loop.
    pub(super) fn wake(&self) -> bool {
        if !self.runs.get() {
            return false;
        }
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
        true
    }
}
