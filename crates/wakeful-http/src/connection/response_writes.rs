//! How fast responses are written: how much the client takes from the socket, and, with HTTP/2, how
//! much its windows allow.
//!
//! How much the socket takes would not tell: the kernel lets a writer go on only when a third of a
//! large buffer is free, and whoever reads steadily may need a minute for that. So what the client
//! has taken is counted, which the kernel knows.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::shut_window::ShutWindow;
use crate::limits::MinRate;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ResponseWrites {
    is_blocked: Cell<bool>,
    /// How many bytes the connection has taken. (A TLS connection takes more than its socket.)
    written: Cell<u64>,
    /// The largest number of bytes that the client had taken when it was asked for, and how many
    /// more these were than at first.
    most_taken: Cell<Option<i64>>,
    taken: Cell<u64>,
    /// For how long the socket was blocked.
    socket: RefCell<ShutWindow>,
    /// With HTTP/2: how many bytes of responses were sent, and whether some stream is not
    /// completely sent.
    sent: Cell<u64>,
    has_open_streams: Cell<bool>,
    /// For how long that was so.
    streams: RefCell<ShutWindow>,
}

impl ResponseWrites {
    /// Returns whether the socket takes nothing more, though not everything is written and flushed.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked.get()
    }

    /// Notes whether the socket takes nothing more.
    #[inline]
    pub(super) fn waits(&self, is_blocked: bool) {
        self.is_blocked.set(is_blocked);
    }

    /// Notes that this number of bytes was written.
    #[inline]
    pub(crate) fn wrote(&self, bytes: usize) {
        self.written.set(self.written.get() + bytes as u64);
    }

    /// Returns how many bytes were written in all.
    pub(super) fn written(&self) -> u64 {
        self.written.get()
    }

    /// Notes how many bytes the client has taken of all that was written. The number may begin
    /// below zero, and may fall while the socket takes more.
    pub(super) fn client_has(&self, taken: i64) {
        let before = self.most_taken.get().unwrap_or(taken.min(0));
        let most = taken.max(before);
        self.most_taken.set(Some(most));
        self.taken.set(self.taken.get() + most.abs_diff(before));
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

    /// Returns whether the client has taken too little from the socket in the time `passed` since
    /// the last check.
    pub(super) fn is_too_slow(&self, rate: MinRate, passed: Duration) -> bool {
        let mut socket = self.socket.borrow_mut();
        if self.is_blocked.get() {
            socket.is_too_slow(rate, passed, self.taken.get())
        } else {
            socket.is_open();
            false
        }
    }

    /// Returns whether the streams have sent too little in the time `passed` since the last check.
    /// While the socket is full they send nothing, though the client may take what it holds.
    pub(super) fn are_streams_too_slow(&self, rate: MinRate, passed: Duration) -> bool {
        let mut streams = self.streams.borrow_mut();
        if self.has_open_streams.get() {
            streams.is_too_slow(rate, passed, self.sent.get() + self.taken.get())
        } else {
            streams.is_open();
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_has_taken_counts_however_it_begins() {
        let writes = ResponseWrites::default();
        // Bytes that were written on another loop are unsent.
        for (taken, counted) in [(-100, 0), (-90, 10), (-95, 10), (-85, 15), (20, 120), (5, 120)] {
            writes.client_has(taken);
            assert_eq!(writes.taken.get(), counted, "{taken}");
        }
        let writes = ResponseWrites::default();
        writes.client_has(100);
        assert_eq!(writes.taken.get(), 100);
    }

    #[test]
    fn streams_that_wait_for_a_full_socket_are_as_fast_as_the_client_takes_it() {
        const SECOND: Duration = Duration::from_secs(1);
        let rate = MinRate::new(100, 4 * SECOND);
        for (each_second, is_cut) in [(100_i64, false), (99, true)] {
            let writes = ResponseWrites::default();
            writes.streams_sent(4 << 20, true);
            let is_too_slow = |second: i64| {
                writes.client_has(second * each_second);
                writes.are_streams_too_slow(rate, SECOND)
            };
            // Longer than a client may pause that has taken much at once.
            assert_eq!((1..200).any(is_too_slow), is_cut, "{each_second}");
        }
    }
}
