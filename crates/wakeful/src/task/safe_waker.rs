//! Wakers for libraries that clone, wake or drop them with a lock held: h2 with that of a connection, `event-listener` with that of
//! all who wait. A waker of another library that panics there would keep others from being woken, or leave the lock poisoned.

use std::sync::{Arc, Weak};
use std::task::{Context, Wake, Waker};

use super::raw;
use crate::panics;

/// Stands in for another library's waker, and contains its panics. A task's own waker runs nobody's code and is left as it is.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct SafeWaker {
    /// The stand-in that was given last.
    last: Weak<StandIn>,
}

impl SafeWaker {
    /// Gives `poll` a waker in place of the context's, if that is another library's.
    ///
    /// # Panics
    /// When the waker's clone does.
    #[inline]
    pub fn with<R>(&mut self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> R) -> R {
        if raw::is_own(cx.waker()) {
            return poll(cx);
        }
        let stand_in = self.stand_in_for(cx.waker());
        poll(&mut Context::from_waker(&stand_in))
    }

    /// The same one for the same waker, as long as it is kept, so that `will_wake` tells.
    #[cold]
    fn stand_in_for(&mut self, waker: &Waker) -> Waker {
        let is_for_it =
            |last: &Arc<StandIn>| last.0.as_ref().is_some_and(|theirs| theirs.will_wake(waker));
        let last = self.last.upgrade().filter(is_for_it);
        let stand_in = last.unwrap_or_else(|| Arc::new(StandIn(Some(waker.clone()))));
        self.last = Arc::downgrade(&stand_in);
        stand_in.into()
    }
}

#[derive(Debug)]
struct StandIn(
    /// `None` only while it is dropped.
    Option<Waker>,
);

impl Wake for StandIn {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        panics::contain(|| self.0.iter().for_each(Waker::wake_by_ref));
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        panics::discard(self.0.take());
    }
}

#[cfg(all(test, not(wakeful_loom), not(miri)))] // Miri has no epoll, and gives the table of a waker several addresses.
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;

    use super::*;

    #[derive(Default)]
    struct Panics(AtomicUsize);

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("a waker that panics, on purpose");
        }
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("a waker whose drop panics, on purpose");
        }
    }

    #[test]
    fn a_stand_in_contains_panics_and_is_the_same_as_long_as_it_is_kept() {
        let theirs: Waker = Arc::new(Panics::default()).into();
        let mut safe = SafeWaker::default();
        let mut kept = || {
            let mut cx = Context::from_waker(&theirs);
            safe.with(&mut cx, |cx| cx.waker().clone())
        };
        let (one, other) = (kept(), kept());
        assert!(one.will_wake(&other) && !one.will_wake(&theirs));
        one.wake_by_ref();
        assert_eq!(Arc::strong_count(&safe.last.upgrade().unwrap()), 3);
        drop((one, other));
        assert!(safe.last.upgrade().is_none());
        // The last one: its drop is contained, too.
        let last = safe.with(&mut Context::from_waker(&theirs), |cx| cx.waker().clone());
        panics::discard(theirs);
        drop(last);
    }

    #[test]
    fn a_task_s_own_waker_is_left_as_it_is() {
        let task = async {
            let mut safe = SafeWaker::default();
            poll_fn(|cx| {
                let own = cx.waker().clone();
                Poll::Ready(safe.with(cx, |cx| cx.waker().will_wake(&own)))
            })
            .await
        };
        assert!(crate::block_on(async { crate::spawn(task).await.unwrap() }));
    }
}
