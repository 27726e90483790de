//! Another attempt to start a thread, while work waits because the last attempt failed, and to run
//! the errands that are left.
//!
//! The threads cannot make it, because all of them are busy, maybe for ever. So each loop whose
//! thread has given such work, or awaits it, makes it by a timer: one for all its work. Another
//! loop may end, or may have no turn for long, so none relies on another one.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Has the loop of this thread, if it has one, wake the waker after this time. Returns whether it
/// has one.
type WakeAfter = fn(Duration, Waker) -> bool;

/// Calls the function with the attempts of this thread's loop, if it has one.
type OfLoop = fn(&mut dyn FnMut(&Attempts));

thread_local! {
    static HERE: Cell<Option<(WakeAfter, OfLoop)>> = const { Cell::new(None) };
}

/// From now on, `wake_after` sets the timers on this thread, and `of_loop` finds its loop.
pub(crate) fn try_again_by(wake_after: WakeAfter, of_loop: OfLoop) {
    HERE.set(Some((wake_after, of_loop)));
}

/// What waits for a thread.
pub(super) trait Queue: Send + Sync {
    /// Tries to start a thread if jobs before number `end` wait, and runs errands if no thread
    /// does. Returns whether such jobs still wait, or any errand is left.
    fn attempt(&'static self, end: u64) -> bool;
}

/// A loop's attempts. They end with the loop, or when nothing waits for them.
#[derive(Default)]
pub(crate) struct Attempts(RefCell<Weak<Again>>);

struct Again {
    pause: Duration,
    queue: &'static dyn Queue,
    /// It is for jobs before this number.
    end: AtomicU64,
}

/// Has the loop of this thread make an attempt after each `pause`, as long as jobs before number
/// `end` wait, or errands are left. Returns `false` if there is no loop.
#[cold]
pub(super) fn after_each(pause: Duration, queue: &'static dyn Queue, end: u64) -> bool {
    let Some((_, of_loop)) = HERE.try_with(Cell::get).ok().flatten() else { return false };
    let mut there = None;
    of_loop(&mut |attempts| there = attempts.0.borrow().upgrade());
    if let Some(there) = there.filter(|there| ptr::addr_eq(there.queue, queue)) {
        there.end.fetch_max(end, Ordering::Relaxed);
        return true;
    }
    let again = Arc::new(Again { pause, queue, end: AtomicU64::new(end) });
    let is_set = set(again.clone());
    of_loop(&mut |attempts| *attempts.0.borrow_mut() = Arc::downgrade(&again));
    is_set
}

fn set(again: Arc<Again>) -> bool {
    let here = HERE.try_with(Cell::get).ok().flatten();
    here.is_some_and(|(wake_after, _)| wake_after(again.pause, Waker::from(again)))
}

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        if self.queue.attempt(self.end.load(Ordering::Relaxed)) {
            set(self);
        }
    }
}
