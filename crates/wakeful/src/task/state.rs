//! A task's life in one word: four flags of its scheduling, two of its handle, and its references.
//!
//! ```text
//!            wake                start                 pause
//!   idle ───────────▶ SCHEDULED ───────▶ RUNNING ─────────────────▶ idle
//!                         ▲                 │ └─ woken meanwhile: SCHEDULED again
//!                         │                 │ finish
//!                         └─ abort          ▼
//!                                        COMPLETE
//! ```
//!
//! The thread that turns idle into SCHEDULED queues the task, so the task is in at most one queue,
//! once. Only the loop's thread starts, pauses and finishes a task. The loop (until the task is
//! complete), the handle and the wakers hold references. A queue needs none, because the loop's
//! reference lasts as long as the task can be queued.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::sys::sync::AtomicUsize;

const SCHEDULED: usize = 1 << 0;
const RUNNING: usize = 1 << 1;
const COMPLETE: usize = 1 << 2;
const ABORTED: usize = 1 << 3;
/// There is a `JoinHandle`, which has the right to the output.
const HANDLE: usize = 1 << 4;
/// The joiner may be woken in a forked child.
const WAKES_IN_CHILD: usize = 1 << 5;
const REFERENCE: usize = 1 << 6;

#[derive(Debug)]
pub(super) struct State(AtomicUsize);

/// What to do with a started task.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    Poll,
    Cancel,
}

impl State {
    /// Scheduled, with a handle, and with two references: the loop's and the handle's.
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(SCHEDULED | HANDLE | (2 * REFERENCE)))
    }

    /// `true`: the caller must queue the task.
    #[inline]
    pub(super) fn wake(&self) -> bool {
        // Release: the poll that this causes must see what the waker did before, even if the flag
        // was set already. `start` and `pause` read the word with Acquire.
        self.0.fetch_or(SCHEDULED, AcqRel) & (SCHEDULED | RUNNING | COMPLETE) == 0
    }

    /// Asks for the task's end. `true`: the caller must queue the task.
    pub(super) fn abort(&self) -> bool {
        self.0.fetch_or(SCHEDULED | ABORTED, AcqRel) & (SCHEDULED | RUNNING | COMPLETE) == 0
    }

    /// Called when the loop has taken the task from its queue.
    #[inline]
    pub(super) fn start(&self) -> Start {
        // SCHEDULED becomes RUNNING in one addition, because SCHEDULED is known to be set and
        // RUNNING to be clear.
        let before = self.0.fetch_add(RUNNING - SCHEDULED, AcqRel);
        debug_assert_eq!(before & (SCHEDULED | RUNNING | COMPLETE), SCHEDULED);
        if before & ABORTED == 0 { Start::Poll } else { Start::Cancel }
    }

    /// Called after a poll that was pending. `true`: the task was woken meanwhile, so the loop must
    /// queue it again.
    #[inline]
    pub(super) fn pause(&self) -> bool {
        self.0.fetch_and(!RUNNING, AcqRel) & SCHEDULED != 0
    }

    /// Called when the loop ends the task, whatever the task's state is.
    pub(super) fn seize(&self) {
        self.0.fetch_or(RUNNING, AcqRel);
    }

    /// Called when the output is in place. `true`: the output belongs to the handle; `false`: there
    /// is no handle.
    pub(super) fn finish(&self) -> bool {
        let before = self.0.fetch_add(COMPLETE - RUNNING, AcqRel);
        debug_assert_eq!(before & (RUNNING | COMPLETE), RUNNING);
        before & HANDLE != 0
    }

    /// Called when the handle is dropped. `true`: the task was complete, so the handle must still
    /// drop the output.
    pub(super) fn drop_handle(&self) -> bool {
        self.0.fetch_and(!HANDLE, AcqRel) & COMPLETE != 0
    }

    /// Allows that the joiner is woken in a forked child. Must be called before the joiner is
    /// registered.
    pub(super) fn allow_wake_in_child(&self) {
        self.0.fetch_or(WAKES_IN_CHILD, Relaxed);
    }

    /// May the joiner be woken in a forked child? Must be asked after the joiner was taken.
    pub(super) fn may_wake_in_child(&self) -> bool {
        self.0.load(Relaxed) & WAKES_IN_CHILD != 0
    }

    pub(super) fn is_complete(&self) -> bool {
        self.0.load(Acquire) & COMPLETE != 0
    }

    #[inline]
    pub(super) fn add_reference(&self) {
        let before = self.0.fetch_add(REFERENCE, Relaxed);
        if before > usize::MAX / 2 {
            // The count must not wrap, for example if code leaks wakers without end. `Arc` aborts,
            // too.
            std::process::abort();
        }
    }

    /// `true`: that was the last reference, so the caller must free the task.
    #[inline]
    pub(super) fn drop_reference(&self) -> bool {
        if self.0.fetch_sub(REFERENCE, Release) & !(REFERENCE - 1) != REFERENCE {
            return false;
        }
        // Acquire: what other threads did before they gave up their references must come before the
        // end. This is a load and not a fence, because ThreadSanitizer does not support fences.
        let _ = self.0.load(Acquire);
        true
    }
}

#[cfg(all(test, wakeful_loom))]
#[allow(unsafe_code)]
mod loom_tests;
