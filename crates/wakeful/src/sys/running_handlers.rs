//! How many of this crate's signal handlers run now ([`signals`](super::signals)). What they use is
//! freed only while none runs.
//!
//! Nobody waits for that, because a forked child has a copy of the count and not the threads in
//! which the handlers run. There it begins at 0 again.

use std::sync::atomic::{AtomicUsize, Ordering};

static HERE: RunningHandlers = RunningHandlers(AtomicUsize::new(0));

struct RunningHandlers(AtomicUsize);

/// Counts a handler while it runs `f`, which must not panic.
pub(super) fn during(f: impl FnOnce()) {
    HERE.during(f);
}

/// Does none run? One that begins later sees what was stored before this call.
pub(super) fn are_none() -> bool {
    HERE.are_none()
}

/// Called in a forked child.
pub(super) fn in_child() {
    HERE.in_child();
}

impl RunningHandlers {
    fn during(&self, f: impl FnOnce()) {
        self.0.fetch_add(1, Ordering::SeqCst);
        f();
        // If another handler interrupted this one and forked, the count is 0 in the child.
        let one_less = |count: usize| count.checked_sub(1);
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
    }

    fn are_none(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }

    fn in_child(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_child_counts_no_handler_of_its_parent() {
        let running = RunningHandlers(AtomicUsize::new(0));
        running.during(|| {
            running.during(|| assert!(!running.are_none()));
            assert!(!running.are_none());
            running.in_child();
            assert!(running.are_none());
        });
        assert!(running.are_none());
        running.during(|| assert!(!running.are_none()));
    }
}
