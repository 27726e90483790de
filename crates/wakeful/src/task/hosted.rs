//! A loop whose sleep belongs to another runtime, its host, on the same thread.
//!
//! The loop takes its turns within the host's root future. Between two polls of the root future,
//! the host's own tasks run on this thread, and the loop's queue is marked asleep, so that other
//! threads ring. What this thread makes runnable meanwhile needs no system call: it goes to the
//! ready list (`local::push_hosted`), and the host's waker wakes the root future. The host checks
//! for such a wake before it sleeps.
//!
//! What this thread sends stays in order: the queue was empty when it was marked asleep, so
//! everything that this thread sent before is in the ready list.

use std::cell::{Cell, OnceCell};
use std::task::Waker;

/// Wakes the host's root future.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Set by the first poll of the root future. It is the same in each poll.
    waker: OnceCell<Waker>,
    runs: Cell<bool>,
}

impl Host {
    /// Sets whether the host runs the loop. Returns the previous value.
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
