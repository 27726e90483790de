//! A signal that is set once, and that any number of tasks of any executor await.
//!
//! Closing a channel would not be enough: a panic in one waiter's waker would end the call that
//! closes the channel, and the waiters after it would not learn of the drain.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;
use wakeful::process::ProcessMark;

use super::put_off::PutOff;
use crate::foreign_code;

#[derive(Debug, Clone, Default)]
pub(super) struct Latch(Arc<State>);

#[derive(Debug, Default)]
struct State {
    given: AtomicBool,
    /// The lock is held only for a moment, and no waker runs, is cloned or is dropped meanwhile.
    waiting: Mutex<Slab<Waker>>,
}

impl State {
    fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    fn waiting(&self) -> MutexGuard<'_, Slab<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Latch {
    pub(super) fn give(&self) {
        // The flag is set under the lock. So a waiter that finds it clear under the lock is in the
        // list that is taken here.
        let waiting = {
            let mut waiting = self.0.waiting();
            self.0.given.store(true, Ordering::Release);
            std::mem::take(&mut *waiting)
        };
        for (_, waker) in waiting {
            foreign_code::wake(waker);
        }
    }

    pub(super) fn is_given(&self) -> bool {
        self.0.is_given()
    }

    pub(super) fn wait(&self) -> Given {
        let (place, put_off) = (None, PutOff::default());
        Given { state: self.0.clone(), place, home: ProcessMark::new(), put_off }
    }
}

/// Waits until the signal is given.
#[derive(Debug)]
pub(super) struct Given {
    state: Arc<State>,
    place: Option<usize>,
    /// The process of the place. In a forked child the lock may be locked for ever.
    home: ProcessMark,
    put_off: PutOff,
}

impl Future for Given {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let waker = cx.waker().clone();
        let mut waiting = this.state.waiting();
        if this.state.is_given() {
            // The signal has removed all places.
            this.place = None;
            drop(waiting);
            foreign_code::discard(Some(waker));
            return this.put_off.poll(cx);
        }
        let before = match this.place {
            Some(place) => Some(std::mem::replace(&mut waiting[place], waker)),
            None => {
                this.place = Some(waiting.insert(waker));
                this.home = ProcessMark::new();
                None
            }
        };
        drop(waiting);
        foreign_code::discard(before);
        Poll::Pending
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        if self.home.is_forked() {
            return;
        }
        let mut waiting = self.state.waiting();
        let waker = if self.state.is_given() { None } else { waiting.try_remove(place) };
        drop(waiting);
        foreign_code::discard(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Panics(AtomicUsize);

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("a waker that panics, on purpose");
        }
    }

    #[test]
    fn a_waker_that_panics_keeps_no_other_from_hearing_of_the_signal() {
        let (signal, panics) = (Latch::default(), Arc::new(Panics::default()));
        let waker = panics.clone().into();
        let mut cx = Context::from_waker(&waker);
        let mut waiting = [(); 3].map(|()| signal.wait());
        for one in &mut waiting {
            assert!(Pin::new(one).poll(&mut cx).is_pending());
        }
        // One that gives up leaves its place to the next.
        let mut given_up = signal.wait();
        assert!(Pin::new(&mut given_up).poll(&mut cx).is_pending());
        drop(given_up);
        assert!(!signal.is_given());
        signal.give();
        assert_eq!(panics.0.load(Ordering::Relaxed), waiting.len());
        assert!(waiting.iter_mut().all(|one| Pin::new(one).poll(&mut cx).is_ready()));
        signal.give();
    }

    #[test]
    fn a_drop_in_a_forked_child_waits_for_no_lock() {
        let latch = Latch::default();
        let mut given = latch.wait();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut given).poll(&mut cx).is_pending());
        given.home = ProcessMark::of_parent();
        // The lock is held as by another thread of the parent at the fork.
        let locked = latch.0.waiting();
        foreign_code::drops_without_waiting(given);
        drop(locked);
    }
}
