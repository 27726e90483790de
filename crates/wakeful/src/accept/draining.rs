//! How a loop's connections are told that the server drains: without a lock, and without a cost per request.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

/// Tells a connection that the server drains: it should finish what it is doing and close.
///
/// *Threads*: it belongs to its loop, like the connection.
#[derive(Debug, Clone, Default)]
pub struct Draining(Rc<State>);

#[derive(Debug, Default)]
struct State {
    started: Cell<bool>,
    waiting: RefCell<Slab<Waker>>,
}

impl Draining {
    /// Waits until the server begins to drain.
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
        let waiting = self.0.waiting.take();
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// The future of [`Draining::started`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct DrainingStarted {
    state: Rc<State>,
    place: Option<usize>,
}

impl Future for DrainingStarted {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.state.started.get() {
            // The places went with the start.
            this.place = None;
            return Poll::Ready(());
        }
        let mut waiting = this.state.waiting.borrow_mut();
        let old = match this.place {
            Some(place) if waiting[place].will_wake(cx.waker()) => None,
            Some(place) => Some(std::mem::replace(&mut waiting[place], cx.waker().clone())),
            None => {
                this.place = Some(waiting.insert(cx.waker().clone()));
                None
            }
        };
        drop(waiting);
        drop(old);
        Poll::Pending
    }
}

impl Drop for DrainingStarted {
    fn drop(&mut self) {
        if let Some(place) = self.place.filter(|_| !self.state.started.get()) {
            let waker = self.state.waiting.borrow_mut().try_remove(place);
            drop(waker);
        }
    }
}
