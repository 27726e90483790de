//! Spawning on a loop's own thread.

use std::future::Future;
use std::panic::Location;

use super::header;
use super::join::JoinHandle;
use super::local::{Local, schedule_in_order};
use super::raw;
use crate::priority::Priority;

impl Local {
    /// Spawns a task of this loop. While the loop ends, the task is cancelled at once, and its
    /// future is dropped before the end is over.
    #[track_caller]
    pub(crate) fn spawn<F: Future + 'static>(
        &self,
        priority: Priority,
        future: F,
    ) -> JoinHandle<F::Output> {
        self.spawn_at(Location::caller(), priority, future)
    }

    /// Like [`spawn`](Self::spawn), for a task that metrics and logs name by `spawned_at`.
    pub(crate) fn spawn_at<F: Future + 'static>(
        &self,
        spawned_at: &'static Location<'static>,
        priority: Priority,
        future: F,
    ) -> JoinHandle<F::Output> {
        if self.late.has_begun() {
            self.late.add(future);
            return self.cancelled(spawned_at, priority);
        }
        let header = raw::allocate(priority, future, self.queue.clone(), spawned_at);
        // The first run finds that it has no place yet, and adopts it.
        // SAFETY: a fresh task, scheduled and in no queue, with a reference for the loop. Pushed
        // from outside a turn it stays on this thread all the same.
        let scheduled = unsafe { schedule_in_order(&self.queue, header.cast()) };
        debug_assert!(scheduled.is_ok(), "only the end closes the queue");
        // SAFETY: the handle's reference is the second of the two.
        unsafe { JoinHandle::new(header) }
    }

    /// The handle of a task that is over, and that had no future to drop.
    #[cold]
    fn cancelled<T: 'static>(
        &self,
        spawned_at: &'static Location<'static>,
        priority: Priority,
    ) -> JoinHandle<T> {
        let pending = std::future::pending::<T>();
        let header = raw::allocate(priority, pending, self.queue.clone(), spawned_at);
        // SAFETY: a task that no loop has met, on the thread of its loop; the handle has the second
        // reference.
        unsafe {
            header::cancel(header);
            JoinHandle::new(header)
        }
    }
}
