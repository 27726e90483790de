//! The observed behaviour of hyper. hyper itself reports little, so `observed_io` wraps its service
//! and its io.

use std::cell::Cell;

use crate::connection::{ConnectionState, Phase};

/// What hyper was seen to do.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// hyper has called the service.
    pub(super) served: Cell<bool>,
    /// hyper's last read since it called the service was pending, so the next bytes wake it.
    pub(super) waits_to_read: Cell<bool>,
    /// Bytes have come since the last request was over.
    pub(super) comes: Cell<bool>,
    /// hyper has not flushed since its last write.
    pub(super) unflushed: Cell<bool>,
    /// hyper has called the service before it had flushed the response before.
    pub(super) is_early: Cell<bool>,
    /// hyper has answered a request that it found too large. Its answer was not written, because
    /// `close` sends one that says what was too large.
    pub(super) found_too_large: Cell<bool>,
    /// hyper was told to end when it is idle.
    pub(super) finishes: Cell<bool>,
    /// hyper was told to end because the connection moves to another loop.
    pub(super) leaves: Cell<bool>,
    /// hyper has ended without a flush, and was polled again.
    pub(super) is_flushing: Cell<bool>,
    /// The connection is upgraded to another protocol, so hyper must not shut down its side.
    pub(super) is_upgraded: Cell<bool>,
    /// The client speaks HTTP/1.0, so the close alone may tell it where its response ends.
    pub(super) ends_by_close: Cell<bool>,
    /// hyper has shut down its side. After a failed upgrade it does not, and leaves that to its
    /// caller.
    pub(super) is_shut: Cell<bool>,
    /// As hyper shut down its side, the kernel held something that had not reached the client.
    pub(super) is_unsent: Cell<bool>,
}

impl Observed {
    pub(super) fn phase(&self, state: &ConnectionState) -> Phase {
        // The idle timeout must not cut off a body that a task still reads after the response. But
        // a body may also be complete and only held, so the drain tries.
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

    /// Has hyper read the client's end, after the last response? Bytes that it has read instead are
    /// still in its buffer, `unread`.
    pub(super) fn client_has_ended(&self, unread: &[u8]) -> bool {
        self.comes.get() && unread.is_empty()
    }

    /// Does hyper wait for another request, after a poll in which it has not ended? If it had given
    /// the rest of a body up, it would have ended with the last flush.
    pub(super) fn waits_for_request(&self, state: &ConnectionState) -> bool {
        self.waits_to_read.get()
            && !self.unflushed.get()
            && !self.is_shut.get()
            && !state.requests().is_in_flight()
    }

    /// Has hyper stopped although it may have another request in its buffer? Returns `true` once
    /// for each request and read.
    ///
    /// hyper (1.12) polls a response's body a second time after it has flushed. If the body ends
    /// then, hyper does not return to its reads, because it expects that the event that ended the
    /// body also woke the task. But a body may end by the clock, or by a flag, before anything
    /// wakes its task.
    pub(super) fn leaves_unread(&self, state: &ConnectionState) -> bool {
        !self.waits_to_read.get()
            && self.served.get()
            && !state.requests().is_in_flight()
            && !self.unflushed.get()
            && !self.waits_to_read.replace(true)
    }

    /// Has hyper stopped although it has a request to answer? Returns `true` at most once for each
    /// request.
    ///
    /// hyper may call the service for a pipelined request while the response before waits for room
    /// in the socket. It polls the service's future after the flush, but does not return to that
    /// from the flush.
    pub(super) fn leaves_unwritten(&self, state: &ConnectionState) -> bool {
        !self.unflushed.get() && self.is_early.take() && state.requests().is_in_flight()
    }

    /// Has hyper ended although it has not flushed? Returns `true` once.
    ///
    /// hyper ends so if a request of the connection had an `Upgrade` header, and a response ends
    /// while the socket has no room. If it is polled again, it flushes and shuts down its side.
    pub(super) fn ends_unflushed(&self) -> bool {
        self.unflushed.get() && !self.is_flushing.replace(true)
    }

    /// Before the first request hyper does not count as idle.
    pub(super) fn is_between_requests(&self, state: &ConnectionState) -> bool {
        // hyper may still read the rest of a body that was dropped.
        self.served.get()
            && !state.requests().is_in_flight()
            && !self.unflushed.get()
            && !state.last_body().is_held()
            && !state.last_body().is_cut()
    }
}
