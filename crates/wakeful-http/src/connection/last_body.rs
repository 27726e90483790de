//! The body of the last HTTP/1 request that had one. After the response, a task may still be
//! reading it, or nobody needs the rest of it.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use super::body_progress::Progress;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct LastBody {
    progress: RefCell<Option<Progress>>,
    /// See [`is_left`](Self::is_left).
    is_left: Cell<bool>,
    /// How much of the body had come at the last check, and since when.
    looked: Cell<Option<(u64, Instant)>>,
}

impl LastBody {
    /// Begins a request, with a body or without.
    pub(crate) fn begin(&self, progress: Option<Progress>) {
        self.progress.replace(progress);
        self.is_left.set(false);
        self.looked.set(None);
    }

    /// Begins a request that is refused. If it has a body, hyper tries to read that once.
    pub(crate) fn begin_refused(&self, has_one: bool) {
        self.begin(has_one.then(|| {
            let progress = Progress::default();
            progress.is_dropped();
            progress
        }));
    }

    /// Notes that the answer to the refused request follows. If hyper closes the connection after
    /// it, not all of the body has come.
    pub(crate) fn is_refused(&self) {
        self.progress.replace(None);
        self.is_left.set(true);
    }

    /// Notes that the connection is busy with something else. The wait for the body begins again
    /// after that.
    pub(super) fn is_waited_for(&self) {
        self.looked.set(None);
    }

    /// Returns for how long nothing has come of a body that is still held although its request is
    /// no longer in flight, according to the checks so far. The time `stopped` does not count.
    pub(super) fn stands_still(&self, now: Instant, stopped: Duration) -> Duration {
        let progress = self.progress.borrow();
        let Some(body) = progress.as_ref().filter(|body| !body.is_alone()) else {
            self.looked.set(None);
            return Duration::ZERO;
        };
        let (received, _) = body.now();
        let since = match self.looked.get() {
            Some((before, since)) if before == received => since + stopped,
            _ => now,
        };
        self.looked.set(Some((received, since)));
        now.saturating_duration_since(since)
    }

    /// Returns whether the body is still held although its request is no longer in flight.
    pub(crate) fn is_held(&self) -> bool {
        self.progress.borrow().as_ref().is_some_and(|body| !body.is_alone())
    }

    /// Returns whether the body was dropped before its end, and perhaps not all of it has come.
    pub(crate) fn is_cut(&self) -> bool {
        self.progress.borrow().as_ref().is_some_and(Progress::is_cut)
    }

    /// Returns whether hyper, when it is polled next, finds that the body was dropped before its
    /// end.
    pub(crate) fn is_dropped(&self) -> bool {
        self.is_cut() && !self.is_held()
    }

    /// Notes that hyper waits for another request, so that all of the body has come. `is_dropped`:
    /// the body was dropped before hyper was polled. If not, hyper may not know of it yet.
    pub(crate) fn has_come(&self, is_dropped: bool) {
        self.is_left.set(false);
        if is_dropped {
            self.progress.replace(None);
        }
    }

    /// Returns whether the connection closes before all of the body has come. Its client may still
    /// send the rest.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left.get() || self.is_cut()
    }

    /// Returns whether the rest of an unwanted body is read next. hyper tries to read it once, and
    /// closes the connection after the response if there is more. Returns `true` once for each such
    /// body.
    pub(crate) fn takes_rest(&self) -> bool {
        let is_cut = self.is_cut();
        if is_cut {
            self.progress.replace(None);
            self.is_left.set(true);
        }
        is_cut
    }
}
