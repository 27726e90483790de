//! The future of `block_on`. It is not a task, because it may borrow. It is polled between turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use crate::task::Queue;

pub(super) struct Root {
    woken: AtomicBool,
    queue: Arc<Queue>,
}

impl Root {
    /// It starts woken, because its first poll is due.
    pub(super) fn new(queue: Arc<Queue>) -> Arc<Self> {
        Arc::new(Self { woken: AtomicBool::new(true), queue })
    }

    #[inline]
    pub(super) fn take_woken(&self) -> bool {
        // A wake that comes after this check has also marked the queue, which prevents the sleep.
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::Acquire)
    }
}

impl Wake for Root {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The flag is set first, so that a thread that sees the queue's mark also sees the flag.
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.queue.wake();
        }
    }
}
