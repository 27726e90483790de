//! How responses are written: what the socket takes, and, with HTTP/2, what the client's windows
//! let through.

use std::task::Poll;
use std::time::Duration;

use crate::limits::MinRate;
use crate::limits::rate_meter::RateMeter;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ResponseWrites {
    socket: RateMeter,
    /// HTTP/2: bytes of responses, while some stream is not sent to its end.
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

    /// Notes how many bytes HTTP/2's streams have sent so far, and whether one of them is not sent
    /// to its end.
    pub(crate) fn streams_sent(&self, bytes: u64, has_open: bool) {
        self.streams.set(bytes);
        self.streams.wait(has_open);
    }

    /// Returns whether the socket has taken too little, `passed` after the last look.
    pub(super) fn is_too_slow(&self, rate: MinRate, passed: Duration) -> bool {
        self.socket.is_too_slow(rate, passed)
    }

    /// Returns whether the streams have sent too little, `passed` after the last look.
    pub(super) fn are_streams_too_slow(&self, rate: MinRate, passed: Duration) -> bool {
        self.streams.is_too_slow(rate, passed)
    }
}
