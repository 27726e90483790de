//! The body of the last HTTP/1 request that had one. Somebody may still read it after the response,
//! or nobody wants the rest of it.

use std::cell::{Cell, RefCell};

use super::body_progress::Progress;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct LastBody {
    progress: RefCell<Option<Progress>>,
    /// See [`is_left`](Self::is_left).
    is_left: Cell<bool>,
}

impl LastBody {
    /// Begins a request, with a body or without.
    pub(crate) fn begin(&self, progress: Option<Progress>) {
        self.progress.replace(progress);
    }

    /// Returns whether somebody still holds the body, though its request is not in flight any more.
    pub(crate) fn is_held(&self) -> bool {
        self.progress.borrow().as_ref().is_some_and(|body| !body.is_alone())
    }

    /// Returns whether the body was dropped before its end, and nothing was read since.
    pub(crate) fn is_cut(&self) -> bool {
        self.progress.borrow().as_ref().is_some_and(Progress::is_cut)
    }

    /// Notes that hyper waits for another request, so all of the body has come.
    pub(crate) fn has_come(&self) {
        self.is_left.set(false);
    }

    /// Returns whether the connection closes before all of the body has come. Its client may still
    /// send the rest.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left.get() || self.is_cut()
    }

    /// Returns whether the rest of a body that nobody wants is read next. hyper reads for it once,
    /// and closes after the response if there is more. True once for each such body.
    pub(crate) fn takes_rest(&self) -> bool {
        let is_cut = self.is_cut();
        self.is_left.set(is_cut);
        if is_cut {
            self.progress.replace(None);
        }
        is_cut
    }
}
