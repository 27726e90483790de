//! How a loop's connections are told that the server drains: without a lock, and without a cost per
//! request.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

use crate::sys::panics;

/// Tells a connection that the server drains: it should finish what it is doing and close.
///
/// A connection may be accepted from the backlog when the drain has started already. Its client has
/// perhaps sent a request. So read first, and close when there is nothing to read.
///
/// *Threads*: it belongs to its loop, like the connection.
#[derive(Debug, Clone, Default)]
pub struct Draining(Rc<State>);

#[derive(Debug, Default)]
struct State {
    started: Cell<bool>,
    waiting: RefCell<Slab<Waker>>,
}

impl State {
    fn is_waiting_for(&self, place: Option<usize>, waker: &Waker) -> bool {
        let waiting = self.waiting.borrow();
        place.and_then(|place| waiting.get(place)).is_some_and(|kept| kept.will_wake(waker))
    }
}

impl Draining {
    /// Waits until the server begins to drain, or its loop ends.
    ///
    /// *Cancel-safe*.
    pub fn started(&self) -> DrainingStarted {
        DrainingStarted { state: self.0.clone(), place: None }
    }

    /// Has the server begun to drain?
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.0.started.get()
    }

    pub(super) fn start(&self) {
        self.0.started.set(true);
        for (_, waker) in self.0.waiting.take() {
            panics::wake(waker);
        }
    }
}

/// Starts the drain when it is dropped, with its loop at the latest. A task of another executor may
/// wait for the drain, and nothing else would tell it.
#[derive(Debug)]
pub(super) struct StartsAtEnd(pub(super) Draining);

impl Drop for StartsAtEnd {
    fn drop(&mut self) {
        self.0.start();
    }
}

/// The future of [`Draining::started`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct DrainingStarted {
    state: Rc<State>,
    place: Option<usize>,
}

impl DrainingStarted {
    fn is_ready(&mut self) -> bool {
        let started = self.state.started.get();
        if started {
            // The places went with the start.
            self.place = None;
        }
        started
    }
}

impl Future for DrainingStarted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.is_ready() {
            return Poll::Ready(());
        }
        if this.state.is_waiting_for(this.place, cx.waker()) {
            return Poll::Pending;
        }
        // Anybody's code, which may start the drain or wait for it: nothing is borrowed meanwhile.
        let waker = cx.waker().clone();
        if this.is_ready() {
            return Poll::Ready(());
        }
        let mut waiting = this.state.waiting.borrow_mut();
        let old = match this.place.and_then(|place| waiting.get_mut(place)) {
            Some(entry) => Some(std::mem::replace(entry, waker)),
            None => {
                this.place = Some(waiting.insert(waker));
                None
            }
        };
        drop(waiting);
        panics::discard(old);
        Poll::Pending
    }
}

impl Drop for DrainingStarted {
    fn drop(&mut self) {
        if let Some(place) = self.place.filter(|_| !self.state.started.get()) {
            let waker = self.state.waiting.borrow_mut().try_remove(place);
            panics::discard(waker);
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    /// Counts its wakes and panics in each.
    #[derive(Default)]
    struct Panics(AtomicUsize);

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("a waker that panics, on purpose");
        }
    }

    #[test]
    fn a_waker_that_panics_keeps_no_other_from_hearing_of_the_start() {
        let (draining, panics) = (Draining::default(), Arc::new(Panics::default()));
        let waker = panics.clone().into();
        let mut cx = Context::from_waker(&waker);
        let mut waiting = [(); 3].map(|()| draining.started());
        for one in &mut waiting {
            assert!(Pin::new(one).poll(&mut cx).is_pending());
        }
        draining.start();
        assert_eq!(panics.0.load(Ordering::Relaxed), waiting.len());
        assert!(waiting.iter_mut().all(|one| Pin::new(one).poll(&mut cx).is_ready()));
    }
}
