//! A task's life in one word: four flags of its scheduling, one of its handle, and its references.
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
//! Who turns idle into SCHEDULED queues the task; so it is in at most one queue, once. Only the
//! loop's thread starts, pauses and finishes. References are held by the loop (until the task is
//! complete), by the handle, and by wakers; a queue needs none, because the loop's lasts as long as
//! the task can be queued.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::sys::sync::AtomicUsize;

const SCHEDULED: usize = 1 << 0;
const RUNNING: usize = 1 << 1;
const COMPLETE: usize = 1 << 2;
const ABORTED: usize = 1 << 3;
/// There is a `JoinHandle`, and it has the right to the output.
const HANDLE: usize = 1 << 4;
const REFERENCE: usize = 1 << 5;

#[derive(Debug)]
pub(super) struct State(AtomicUsize);

/// What a started task is to do.
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
        // Release: what the waker did before is seen by the poll that this causes, also when the
        // flag was set already: `start` and `pause` read the word with Acquire.
        self.0.fetch_or(SCHEDULED, AcqRel) & (SCHEDULED | RUNNING | COMPLETE) == 0
    }

    /// Asks for the end. `true`: the caller must queue the task.
    pub(super) fn abort(&self) -> bool {
        self.0.fetch_or(SCHEDULED | ABORTED, AcqRel) & (SCHEDULED | RUNNING | COMPLETE) == 0
    }

    /// The loop has taken the task from its queue.
    #[inline]
    pub(super) fn start(&self) -> Start {
        // SCHEDULED becomes RUNNING in one addition; both are known to be set and clear.
        let before = self.0.fetch_add(RUNNING - SCHEDULED, AcqRel);
        debug_assert_eq!(before & (SCHEDULED | RUNNING | COMPLETE), SCHEDULED);
        if before & ABORTED == 0 { Start::Poll } else { Start::Cancel }
    }

    /// The poll was pending. `true`: woken meanwhile, the loop must queue the task again.
    #[inline]
    pub(super) fn pause(&self) -> bool {
        self.0.fetch_and(!RUNNING, AcqRel) & SCHEDULED != 0
    }

    /// The loop takes the task to end it, whatever it was doing.
    pub(super) fn seize(&self) {
        self.0.fetch_or(RUNNING, AcqRel);
    }

    /// The output is in place. `true`: it is the handle's; `false`: there is no handle.
    pub(super) fn finish(&self) -> bool {
        let before = self.0.fetch_add(COMPLETE - RUNNING, AcqRel);
        debug_assert_eq!(before & (RUNNING | COMPLETE), RUNNING);
        before & HANDLE != 0
    }

    /// The handle goes. `true`: the task was complete, so the output is still the handle's to drop.
    pub(super) fn drop_handle(&self) -> bool {
        self.0.fetch_and(!HANDLE, AcqRel) & COMPLETE != 0
    }

    pub(super) fn is_complete(&self) -> bool {
        self.0.load(Acquire) & COMPLETE != 0
    }

    #[inline]
    pub(super) fn add_reference(&self) {
        let before = self.0.fetch_add(REFERENCE, Relaxed);
        if before > usize::MAX / 2 {
            // As `Arc` does: somebody leaks wakers without end, and the count must not wrap.
            std::process::abort();
        }
    }

    /// `true`: that was the last one, the caller frees the task.
    #[inline]
    pub(super) fn drop_reference(&self) -> bool {
        if self.0.fetch_sub(REFERENCE, Release) & !(REFERENCE - 1) != REFERENCE {
            return false;
        }
        // Acquire: what the others did before they gave theirs up comes before the end. A load, not
        // a fence, because ThreadSanitizer knows no fences.
        let _ = self.0.load(Acquire);
        true
    }
}

#[cfg(all(test, wakeful_loom))]
#[allow(unsafe_code)]
mod loom_tests;
