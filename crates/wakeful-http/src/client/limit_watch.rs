//! Tells an HTTP/2 connection's task when the server's limit of streams may have changed.
//!
//! h2 applies the server's settings in the task that owns the socket, and tells nobody. That may be
//! later than the read that brings them: they come in two parts, or h2 cannot write its answer yet.
//! So the task that knows the limit looks after each poll of the others, but only while that
//! matters: before the first settings, and from a request that found no room until there is room.

use std::cell::Cell;
use std::task::{Context, Waker};

use crate::foreign_code;

#[derive(Default)]
pub(super) struct LimitWatch {
    /// Whether a larger limit matters now.
    is_on: Cell<bool>,
    /// The waker of the task that knows the limit.
    waker: Cell<Option<Waker>>,
}

impl LimitWatch {
    /// The task that knows the limit calls this in each poll, before it looks.
    pub(super) fn wakes(&self, cx: &Context<'_>) {
        let known = self.waker.take().filter(|known| known.will_wake(cx.waker()));
        self.waker.set(Some(known.unwrap_or_else(|| cx.waker().clone())));
    }

    /// A request has found no room. The limit that is known may be an old one, so the task looks at
    /// once.
    pub(super) fn begin(&self) {
        if !self.is_on.replace(true) {
            self.wake();
        }
    }

    /// The task that knows the limit says whether a larger one matters from now on.
    pub(super) fn set(&self, is_on: bool) {
        self.is_on.set(is_on);
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Called after each poll of a task of hyper: h2 may have applied settings in it.
    pub(super) fn may_have_changed(&self) {
        if self.is_on.get() {
            self.wake();
        }
    }

    fn wake(&self) {
        self.waker.take().into_iter().for_each(foreign_code::wake);
    }
}
