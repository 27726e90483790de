//! Another attempt to start a thread, while work waits because the last attempt failed.
//!
//! The threads cannot make it, because all of them are busy, maybe for ever. So the loop of a
//! thread that has given the work, or that awaits it, makes it by a timer.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

/// Has the loop of this thread, if it has one, wake the waker after this time. Returns whether it
/// has one.
type WakeAfter = fn(Duration, Waker) -> bool;

thread_local! {
    static WAKE_AFTER: Cell<Option<WakeAfter>> = const { Cell::new(None) };
}

/// From now on, `wake_after` sets the timers on this thread.
pub(crate) fn try_again_by(wake_after: WakeAfter) {
    WAKE_AFTER.set(Some(wake_after));
}

/// Has the loop of this thread call `attempt` after each `pause`, until it returns `false`. Returns
/// `false` if there is no loop.
#[cold]
pub(super) fn after_each(
    pause: Duration,
    attempt: impl Fn() -> bool + Send + Sync + 'static,
) -> bool {
    set(Arc::new(Again { pause, attempt }))
}

struct Again<A> {
    pause: Duration,
    attempt: A,
}

fn set<A: Fn() -> bool + Send + Sync + 'static>(again: Arc<Again<A>>) -> bool {
    let wake_after = WAKE_AFTER.try_with(Cell::get).ok().flatten();
    wake_after.is_some_and(|wake_after| wake_after(again.pause, Waker::from(again)))
}

impl<A: Fn() -> bool + Send + Sync + 'static> Wake for Again<A> {
    fn wake(self: Arc<Self>) {
        if (self.attempt)() {
            set(self);
        }
    }
}
