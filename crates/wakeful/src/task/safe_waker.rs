//! Wakers for libraries that clone, wake or drop wakers with a lock held. h2 holds the lock of a
//! connection, and `event-listener` holds the lock of all waiters. If another library's waker
//! panics there, other waiters are not woken, or the lock stays poisoned. If it polls its task at
//! once, or its drop drops its task, it comes back to the same lock, and blocks the loop for ever.
//! So the library gets a stand-in. The real waker is woken and dropped by the loop's next node,
//! when nothing is locked any more. On a thread whose loop does not run, that happens when the call
//! of the library has returned ([`held_back`]).

use std::mem;
use std::sync::{Arc, Weak};
use std::task::{Context, Wake, Waker};

use super::closure::send;
use super::{held_back, local, waker};
use crate::priority::Priority;
use crate::sys::panics;

/// Stands in for another library's waker: it contains its panics, and calls it outside of the code
/// that wakes the stand-in. A task's own waker runs no user code and is left unchanged.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct SafeWaker {
    /// The last stand-in that was made.
    last: Weak<StandIn>,
}

impl SafeWaker {
    /// Gives `poll` a waker in place of the context's, if that is another library's.
    ///
    /// # Panics
    /// When the waker's clone does.
    #[inline]
    pub fn with<R>(&mut self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> R) -> R {
        if waker::is_own(cx.waker()) {
            return held_back::hold_back_wakers(|| poll(cx));
        }
        let stand_in = self.stand_in_for(cx.waker());
        let waker = Waker::from(stand_in.clone());
        held_back::hold_back_wakers(|| {
            let polled = poll(&mut Context::from_waker(&waker));
            drop((waker, stand_in));
            polled
        })
    }

    /// Returns the stand-in for this waker. As long as it is kept, the same waker gets the same
    /// stand-in, so that `will_wake` works.
    #[cold]
    fn stand_in_for(&mut self, waker: &Waker) -> Arc<StandIn> {
        let is_for_it =
            |last: &Arc<StandIn>| last.0.as_ref().is_some_and(|theirs| theirs.will_wake(waker));
        let last = self.last.upgrade().filter(is_for_it);
        let stand_in = last.unwrap_or_else(|| Arc::new(StandIn(Some(waker.clone()))));
        self.last = Arc::downgrade(&stand_in);
        stand_in
    }
}

#[derive(Debug)]
struct StandIn(
    /// `None` only during the drop.
    Option<Waker>,
);

impl Wake for StandIn {
    fn wake(self: Arc<Self>) {
        run_soon(Wakes(Some(self)));
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.clone().wake();
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            run_soon(Drops(Some(waker)));
        }
    }
}

/// Gives the stand-in up, where nothing is locked.
fn release(mut stand_in: Arc<StandIn>) {
    let waker = Arc::get_mut(&mut stand_in).and_then(|last| last.0.take());
    panics::discard(waker);
}

/// Drops `deed` later; the drop does the work. On a thread whose loop runs, a node of the loop
/// drops it, before the loop sleeps. While the loop ends, it is dropped before the end is over. If
/// no loop runs, it is dropped when the call that may hold a lock has returned, or now, if there is
/// no such call.
#[cold]
fn run_soon(deed: impl Send + 'static) {
    local::with_current_if_any(|local| match local {
        None => drop(held_back::add(deed)),
        Some(local) if local.late.has_begun() => local.late.add(deed),
        // If the loop refuses the closure, it is dropped here.
        Some(local) => drop(send(&local.queue, Priority::High, move || drop(deed))),
    });
}

/// Wakes when it is dropped, so that it also wakes if the loop ends before.
struct Wakes(Option<Arc<StandIn>>);

impl Drop for Wakes {
    fn drop(&mut self) {
        if let Some(stand_in) = self.0.take() {
            panics::contain(|| stand_in.0.iter().for_each(Waker::wake_by_ref));
            release(stand_in);
        }
    }
}

/// Drops the waker when it is dropped.
struct Drops(Option<Waker>);

impl Drop for Drops {
    fn drop(&mut self) {
        panics::discard(mem::take(&mut self.0));
    }
}

// Miri has no epoll, and gives the table of a waker several addresses.
#[cfg(all(test, not(wakeful_loom), not(miri)))]
mod tests {
    use std::future::{pending, poll_fn};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
        // The drop of the last waker is contained, too.
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

    /// Notes what was called while the lock was held.
    #[derive(Default)]
    struct Notes {
        is_locked: AtomicBool,
        wakes: AtomicUsize,
        drops: AtomicUsize,
        within: AtomicUsize,
    }

    impl Notes {
        fn note(&self, what: &AtomicUsize) {
            what.fetch_add(1, Ordering::Relaxed);
            self.within.fetch_add(self.is_locked.load(Ordering::Relaxed).into(), Ordering::Relaxed);
        }

        /// Wakes, by reference and by value, and drops as a library does with its lock held.
        fn use_locked(&self, wakers: [Waker; 3]) {
            self.locked(|| {
                let [first, second, third] = wakers;
                first.wake_by_ref();
                drop(first);
                second.wake();
                drop(third);
            });
        }

        fn locked(&self, f: impl FnOnce()) {
            self.is_locked.store(true, Ordering::Relaxed);
            f();
            self.is_locked.store(false, Ordering::Relaxed);
        }

        fn all(&self) -> [usize; 3] {
            [&self.wakes, &self.drops, &self.within].map(|count| count.load(Ordering::Relaxed))
        }
    }

    struct OfNotes(Arc<Notes>);

    impl Wake for OfNotes {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            self.0.note(&self.0.wakes);
        }
    }

    impl Drop for OfNotes {
        fn drop(&mut self) {
            self.0.note(&self.0.drops);
        }
    }

    fn stand_ins(notes: &Arc<Notes>) -> [Waker; 3] {
        [(); 3].map(|()| {
            let theirs = Arc::new(OfNotes(notes.clone())).into();
            SafeWaker::default().with(&mut Context::from_waker(&theirs), |cx| cx.waker().clone())
        })
    }

    #[test]
    fn a_waker_is_woken_and_dropped_outside_of_whatever_does_it_and_before_the_loop_sleeps() {
        let notes = Arc::new(Notes::default());
        let task = notes.clone();
        crate::block_on(async {
            crate::spawn(async move { task.use_locked(stand_ins(&task)) }).await.unwrap();
            while notes.all()[..2] != [2, 3] {
                crate::task::yield_now().await;
            }
        });
        assert_eq!(notes.all(), [2, 3, 0]);
    }

    /// What a library stores for a waiter, and drops with its lock held.
    struct Kept(Arc<Notes>, Option<Waker>);

    impl Drop for Kept {
        fn drop(&mut self) {
            let waker = self.1.take();
            self.0.locked(|| drop(waker));
        }
    }

    fn off_every_loop(without_a_loop: fn()) {
        std::thread::spawn(without_a_loop).join().unwrap();
        // And on a loop's own thread, between two of its turns.
        let mut event_loop = crate::EventLoop::new().unwrap();
        event_loop.turn(Some(std::time::Duration::ZERO)).unwrap();
        without_a_loop();
    }

    #[test]
    fn where_no_loop_runs_it_is_woken_and_dropped_when_the_call_that_locks_has_returned() {
        off_every_loop(|| {
            let notes = Arc::new(Notes::default());
            held_back::hold_back_wakers(|| {
                // The inner call returns while the lock of the outer one is held.
                notes
                    .locked(|| held_back::hold_back_wakers(|| notes.use_locked(stand_ins(&notes))));
                notes.is_locked.store(true, Ordering::Relaxed);
                held_back::hold_back_wakers(|| drop(stand_ins(&notes)));
                notes.is_locked.store(false, Ordering::Relaxed);
            });
            assert_eq!(notes.all(), [2, 6, 0]);
        });
    }

    #[test]
    fn where_no_loop_runs_one_that_is_replaced_is_dropped_outside_of_the_poll() {
        off_every_loop(|| {
            let own = crate::block_on(async {
                let own = async { poll_fn(|cx| Poll::Ready(cx.waker().clone())).await };
                crate::spawn(own).await.unwrap()
            });
            assert!(waker::is_own(&own));
            for other in [Waker::noop(), &own] {
                let notes = Arc::new(Notes::default());
                let theirs = Arc::new(OfNotes(notes.clone())).into();
                let (mut safe, mut kept) = (SafeWaker::default(), None);
                safe.with(&mut Context::from_waker(&theirs), |cx| kept = Some(cx.waker().clone()));
                drop(theirs);
                safe.with(&mut Context::from_waker(other), |cx| {
                    notes.locked(|| drop(kept.replace(cx.waker().clone())));
                });
                assert_eq!(notes.all(), [0, 1, 0]);
            }
        });
    }

    #[test]
    fn where_no_loop_runs_what_a_library_drops_locked_is_dropped_outside() {
        off_every_loop(|| {
            let notes = Arc::new(Notes::default());
            let [waker, ..] = stand_ins(&notes);
            let kept = held_back::Locking::new(Kept(notes.clone(), Some(waker)));
            drop(kept);
            // The other two went before.
            assert_eq!(notes.all(), [0, 3, 0]);
        });
    }

    #[test]
    fn at_the_loop_s_end_it_is_still_woken() {
        struct AtEnd(Arc<Notes>, Option<[Waker; 3]>);
        impl Drop for AtEnd {
            fn drop(&mut self) {
                self.0.use_locked(self.1.take().unwrap());
            }
        }
        let notes = Arc::new(Notes::default());
        let at_end = AtEnd(notes.clone(), Some(stand_ins(&notes)));
        crate::block_on(async {
            crate::spawn(async move {
                let _at_end = at_end;
                pending::<()>().await;
            })
            .detach();
            crate::task::yield_now().await;
        });
        assert_eq!(notes.all(), [2, 3, 0]);
    }
}
