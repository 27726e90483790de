//! How fast responses are written: how much the socket takes, and, with HTTP/2, how much the
//! client's windows allow.

use std::cell::{Cell, RefCell};
use std::task::Poll;
use std::time::Duration;

use super::shut_window::ShutWindow;
use crate::limits::MinRate;
use crate::limits::rate_meter::RateMeter;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ResponseWrites {
    socket: RateMeter,
    /// With HTTP/2: how many bytes of responses were sent, and whether some stream is not
    /// completely sent.
    sent: Cell<u64>,
    has_open_streams: Cell<bool>,
    /// For how long that was so.
    streams: RefCell<ShutWindow>,
}

impl ResponseWrites {
    /// Returns whether the socket takes nothing more.
    pub(crate) fn is_blocked(&self) -> bool {
        self.socket.is_waiting()
    }

    /// Notes the outcome of a write to the socket.
    pub(crate) fn wrote<E>(&self, written: &Poll<Result<usize, E>>) {
        if let Poll::Ready(Ok(count)) = written {
            self.socket.add(*count as u64);
        }
        self.socket.wait(written.is_pending());
    }

    /// Notes how many bytes HTTP/2's streams have sent so far, and whether one of them is not
    /// completely sent.
    pub(crate) fn streams_sent(&self, bytes: u64, has_open: bool) {
        self.sent.set(bytes);
        self.has_open_streams.set(has_open);
    }

    /// Is one of HTTP/2's streams not completely sent?
    pub(super) fn has_open_streams(&self) -> bool {
        self.has_open_streams.get()
    }

    /// Returns whether the socket has taken too little in the time `passed` since the last check.
    pub(super) fn is_too_slow(&self, rate: MinRate, passed: Duration) -> bool {
        self.socket.is_too_slow(rate, passed)
    }

    /// Returns whether the streams have sent too little in the time `passed` since the last check.
    pub(super) fn are_streams_too_slow(&self, rate: MinRate, passed: Duration) -> bool {
        let mut streams = self.streams.borrow_mut();
        if self.has_open_streams.get() {
            streams.is_too_slow(rate, passed, self.sent.get())
        } else {
            streams.is_open();
            false
        }
    }
}
