//! The observed behaviour of hyper. hyper reports little itself, so `observed_io` wraps its service
//! and its io.

use std::cell::Cell;

use crate::connection::{ConnectionState, Phase};

/// What hyper was seen to do.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// It has called the service.
    pub(super) served: Cell<bool>,
    /// Its last read, since it called the service, had to wait. So the next bytes wake it.
    pub(super) waits_to_read: Cell<bool>,
    /// Something has come since the last request was over.
    pub(super) comes: Cell<bool>,
    /// It has not flushed behind its last write.
    pub(super) unflushed: Cell<bool>,
    /// It has answered a request by itself that it found too large, and that answer was not
    /// written: `close` gives one that says what was too large.
    pub(super) found_too_large: Cell<bool>,
    /// It was told to end when it is idle.
    pub(super) finishes: Cell<bool>,
    /// It was told to end because the connection goes on elsewhere.
    pub(super) leaves: Cell<bool>,
    /// The end of its response may be known by the close alone, since its client speaks HTTP/1.0.
    pub(super) ends_by_close: Cell<bool>,
    /// It has ended its side. Behind a request for an upgrade that came to nothing it does not, and
    /// leaves that to others.
    pub(super) is_shut: Cell<bool>,
}

impl Observed {
    pub(super) fn phase(&self, state: &ConnectionState) -> Phase {
        // A body that somebody reads behind its response is not to be cut off by the idle timeout.
        // But it may also be one that is complete and only held, so the drain tries.
        let is_read = || !state.closing().has_begun() && state.last_body().is_held();
        if state.requests().is_in_flight()
            || state.writes().is_blocked()
            || self.finishes.get()
            || is_read()
        {
            Phase::Busy
        } else if self.comes.get() {
            Phase::Header
        } else if state.movable().served() == 0 {
            Phase::First
        } else {
            Phase::Idle
        }
    }

    /// Has hyper stopped with a request unread, which it may have in its buffer? True once for each
    /// request and read.
    ///
    /// hyper (1.12) polls a response's body a second time after it has flushed. If the body ends
    /// then, hyper does not return to its reads, since it expects that what ended the body also
    /// woke the task. A body may end by the clock, or by a flag, before anything wakes its task.
    pub(super) fn leaves_unread(&self, state: &ConnectionState) -> bool {
        !self.waits_to_read.get()
            && self.served.get()
            && !state.requests().is_in_flight()
            && !self.unflushed.get()
            && !self.waits_to_read.replace(true)
    }

    /// Before the first request hyper does not count as idle.
    pub(super) fn is_between_requests(&self, state: &ConnectionState) -> bool {
        // What is left of a body that was dropped, hyper may still read.
        self.served.get()
            && !state.requests().is_in_flight()
            && !self.unflushed.get()
            && !state.last_body().is_held()
            && !state.last_body().is_cut()
    }
}
