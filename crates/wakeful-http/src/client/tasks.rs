//! The tasks of an HTTP/2 connection, which a panic in one of them ends together.
//!
//! A panic of a body's data (as h2 writes or drops it) unwinds through h2's lock, and leaves it
//! poisoned: h2 then tells nobody that the connection is at its end, and panics wherever it is
//! asked. So its tasks end here, which fails the requests that wait for a head, and those who read
//! a body are told.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;
use pin_project_lite::pin_project;
use slab::Slab;

use crate::foreign_code;

/// Spawns them. Clones are of the same connection.
#[derive(Clone, Default)]
pub(super) struct Tasks(Rc<State>);

#[derive(Default)]
struct State {
    has_panicked: Cell<bool>,
    waiting: RefCell<Slab<Option<Waker>>>,
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Tasks {
    fn execute(&self, future: F) {
        wakeful::spawn(Task { future: Some(future), listener: PanicListener::of(self) }).detach();
    }
}

impl Tasks {
    /// Has one of them panicked?
    pub(super) fn have_panicked(&self) -> bool {
        self.0.has_panicked.get()
    }

    /// Contains a panic in `poll`, and then ends them all.
    pub(super) fn contain<R>(&self, poll: impl FnOnce() -> R) -> Option<R> {
        let mut polled = None;
        foreign_code::contain(|| polled = Some(poll()));
        if polled.is_none() {
            self.end();
        }
        polled
    }

    fn end(&self) {
        self.0.has_panicked.set(true);
        let wakers: Vec<_> = {
            let mut waiting = self.0.waiting.borrow_mut();
            waiting.iter_mut().filter_map(|(_, waker)| waker.take()).collect()
        };
        wakers.into_iter().for_each(foreign_code::wake);
    }
}

pin_project! {
    struct Task<F> {
        // None: it has ended.
        #[pin]
        future: Option<F>,
        listener: PanicListener,
    }

    impl<F> PinnedDrop for Task<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut future = this.project().future;
            foreign_code::contain(|| future.set(None));
        }
    }
}

impl<F: Future<Output = ()>> Future for Task<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let Some(future) = this.future.as_pin_mut() else { return Poll::Ready(()) };
        if this.listener.have_panicked() {
            return Poll::Ready(());
        }
        let polled = this.listener.tasks.contain(|| future.poll(cx)).unwrap_or(Poll::Ready(()));
        if polled.is_pending() {
            this.listener.wakes(cx.waker());
        }
        polled
    }
}

/// One that is woken when a task panics: a task beside it, or who reads a body.
pub(super) struct PanicListener {
    tasks: Tasks,
    place: usize,
}

impl PanicListener {
    pub(super) fn of(tasks: &Tasks) -> Self {
        let place = tasks.0.waiting.borrow_mut().insert(None);
        Self { tasks: tasks.clone(), place }
    }

    pub(super) fn have_panicked(&self) -> bool {
        self.tasks.have_panicked()
    }

    pub(super) fn wakes(&self, waker: &Waker) {
        let is_known = |known: &Option<Waker>| known.as_ref().is_some_and(|w| w.will_wake(waker));
        if is_known(&self.tasks.0.waiting.borrow()[self.place]) {
            return;
        }
        // Neither a clone nor a drop of somebody else's waker in the middle of a borrow.
        let waker = waker.clone();
        let old = self.tasks.0.waiting.borrow_mut()[self.place].replace(waker);
        foreign_code::discard(old);
    }
}

impl Drop for PanicListener {
    fn drop(&mut self) {
        let waker = self.tasks.0.waiting.borrow_mut().remove(self.place);
        foreign_code::discard(waker);
    }
}
