//! Whether a connection is about to close. If so, its next response is the last one, and the
//! connection may have a fixed time at which it ends in any case.

use std::cell::Cell;
use std::time::{Duration, Instant};

use wakeful::accept::Draining;

use crate::counts::Refusal;
use crate::loop_state::LoopState;

/// How long a refused client may take to read the answer.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    is_closing: Cell<bool>,
    end_at: Cell<Option<(Instant, Refusal)>>,
}

impl Closing {
    /// Returns whether the next response is the last one.
    pub(crate) fn has_begun(&self) -> bool {
        self.is_closing.get()
    }

    /// Makes the next response the last one. Requests in flight are completed.
    pub(crate) fn begin(&self) {
        self.is_closing.set(true);
    }

    /// Like [`begin`](Self::begin), because the server drains, or has asked this connection to give
    /// its place up.
    pub(crate) fn begin_by(&self, draining: &Draining, loop_state: &LoopState) {
        if !draining.is_started() && !self.has_begun() {
            loop_state.refuse(Refusal::GaveWay);
        }
        self.begin();
    }

    /// Like [`begin`](Self::begin), because a request was refused in a way that ends the
    /// connection.
    pub(crate) fn begin_after(&self, refusal: Refusal) {
        self.begin();
        self.end_within(LAST_WORDS, refusal);
    }

    /// Returns whether an answer was sent that ends the connection.
    pub(crate) fn is_after_refusal(&self) -> bool {
        self.end_at.get().is_some_and(|(_, refusal)| refusal != Refusal::MaxAge)
    }

    /// Ends the connection after `duration` in any case. If there is such an end already, it stays.
    pub(super) fn end_within(&self, duration: Duration, refusal: Refusal) {
        if self.end_at.get().is_none() {
            self.end_at.set(Some((wakeful::time::now() + duration, refusal)));
        }
    }

    /// Does not count a time in which the process was `stopped` as a part of the grace of an old
    /// connection. Not more than the `grace` is left then.
    pub(super) fn spare(&self, stopped: Duration, grace: Duration, now: Instant) {
        if let Some((end_at, Refusal::MaxAge)) = self.end_at.get() {
            let end_at = (end_at + stopped).min(now + grace).max(end_at);
            self.end_at.set(Some((end_at, Refusal::MaxAge)));
        }
    }

    /// Returns when the connection ends in any case, and why.
    pub(super) fn end_at(&self) -> Option<(Instant, Refusal)> {
        self.end_at.get()
    }
}
