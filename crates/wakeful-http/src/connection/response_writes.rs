//! How fast responses are written: how much the socket takes, and, with HTTP/2, how much the
//! client's windows allow.

use std::task::Poll;
use std::time::Duration;

use crate::limits::MinRate;
use crate::limits::rate_meter::RateMeter;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ResponseWrites {
    socket: RateMeter,
    /// With HTTP/2: how many bytes of responses were sent, while some stream is not completely
    /// sent.
    streams: RateMeter,
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
        self.streams.set(bytes);
        self.streams.wait(has_open);
    }

    /// Is one of HTTP/2's streams not completely sent?
    pub(super) fn has_open_streams(&self) -> bool {
        self.streams.is_waiting()
    }

    /// Returns whether the socket has taken too little in the time `passed` since the last check.
    pub(super) fn is_too_slow(&self, rate: MinRate, passed: Duration) -> bool {
        self.socket.is_too_slow(rate, passed)
    }

    /// Returns whether the streams have sent too little in the time `passed` since the last check.
    pub(super) fn are_streams_too_slow(&self, rate: MinRate, passed: Duration) -> bool {
        self.streams.is_too_slow(rate, passed)
    }
}
