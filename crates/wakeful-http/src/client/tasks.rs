//! The tasks of an HTTP/2 connection, which a panic in one of them ends together.
//!
//! If the data of a body panics (when h2 writes or drops it), the panic unwinds through h2's lock
//! and poisons it. h2 then does not report the end of the connection, and panics at each use. So
//! the tasks of the connection end here: requests that wait for a head fail, and readers of bodies
//! get an error.
//!
//! hyper sends a request's body in a separate task, which continues even if the response is dropped
//! before its end. The stream would stay open, and hold a part of the connection's window. So the
//! task ends with the response. h2 then resets the stream, because it has no user any more.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;
use pin_project_lite::pin_project;
use slab::Slab;

use super::limit_watch::LimitWatch;
use crate::foreign_code;

/// Spawns the tasks of a connection. Clones belong to the same connection.
#[derive(Clone, Default)]
pub(super) struct Tasks(Rc<State>);

#[derive(Default)]
struct State {
    has_panicked: Cell<bool>,
    waiting: RefCell<Slab<Option<Waker>>>,
    /// The request whose body the next task will send.
    next: Cell<Option<Rc<GivenUp>>>,
    limit_watch: LimitWatch,
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Tasks {
    fn execute(&self, future: F) {
        let (listener, given_up) = (PanicListener::of(self), self.0.next.take());
        wakeful::spawn(Task { future: Some(future), listener, given_up }).detach();
    }
}

impl Tasks {
    /// Has one of the tasks panicked?
    pub(super) fn have_panicked(&self) -> bool {
        self.0.has_panicked.get()
    }

    pub(super) fn limit_watch(&self) -> &LimitWatch {
        &self.0.limit_watch
    }

    /// Called when hyper has polled a request's body for its first piece. If there is more, hyper
    /// starts a task for the rest before it polls another body.
    pub(super) fn sends_next(&self, given_up: Rc<GivenUp>) {
        self.0.next.set(Some(given_up));
    }

    /// Contains a panic in `poll`, and then ends all tasks.
    pub(super) fn contain<R>(&self, poll: impl FnOnce() -> R) -> Option<R> {
        let mut polled = None;
        foreign_code::contain(|| polled = Some(poll()));
        if polled.is_none() {
            self.end();
        }
        polled
    }

    /// Ends all tasks as after a panic, so that nothing waits for what they own.
    pub(super) fn end(&self) {
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
        // `None`: the future has ended.
        #[pin]
        future: Option<F>,
        listener: PanicListener,
        // The request whose body this task sends.
        given_up: Option<Rc<GivenUp>>,
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
        if this.given_up.as_ref().is_some_and(|given_up| given_up.poll(cx).is_ready()) {
            return Poll::Ready(());
        }
        let tasks = &this.listener.tasks;
        let polled = tasks.contain(|| future.poll(cx)).unwrap_or(Poll::Ready(()));
        tasks.limit_watch().may_have_changed();
        if polled.is_pending() {
            this.listener.wakes(cx.waker());
        }
        polled
    }
}

/// Whether the response of a request was given up. If so, the task that sends the request's body
/// ends.
#[derive(Default)]
pub(super) struct GivenUp {
    is_so: Cell<bool>,
    /// The waker of that task.
    waker: Cell<Option<Waker>>,
}

impl GivenUp {
    pub(super) fn set(&self) {
        self.is_so.set(true);
        self.waker.take().into_iter().for_each(foreign_code::wake);
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_so.get() {
            return Poll::Ready(());
        }
        let known = self.waker.take().filter(|known| known.will_wake(cx.waker()));
        self.waker.set(Some(known.unwrap_or_else(|| cx.waker().clone())));
        Poll::Pending
    }
}

/// Is woken when a task panics. It belongs to another task, or to a reader of a body.
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
        // Cloning and dropping the waker may run user code, so nothing is borrowed meanwhile.
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
