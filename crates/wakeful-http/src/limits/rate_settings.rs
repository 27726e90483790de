//! The minimum rate at which a client must send and read, and the maximum rate of its requests.

use std::time::Duration;

use super::timeouts::{LONGEST_TIMEOUT, SHORTEST_TIMEOUT};

/// The minimum rate of a client, for [`Limits::min_rate`](crate::Limits::min_rate). If a client
/// sends a body or reads a response more slowly than this, the server ends the request. Only time
/// in which the server waits for the client counts.
///
/// Of a response, what counts is what the client's kernel has acknowledged. (Over a Unix socket a
/// client has taken a piece of a response, of up to about 32 KiB, when it has read all of it.) The
/// end of a response that still waits in TLS is a part of it. A kernel whose buffer is full makes
/// room only when a sixteenth of it is free, so whoever took much at once may pause for longer than
/// the window of this rate, then and later: by one second for each 64 KiB, and by at most 60 s.
/// Over such a time its average must not be below the rate.
///
/// Over HTTP/2, a response is ended alone if its client keeps the window of its stream used up and
/// takes it at less than this rate. Other responses on the connection make no difference. The time
/// between two window updates counts, too. Many clients send one only when half of a large window
/// is used, so the longer pauses are for them, too.
///
/// What waits only for the connection's window, or for the socket, counts together with the other
/// responses on its HTTP/2 connection: while all of them together move fast enough, each may wait
/// for any time. Set a [`request_timeout`](crate::Limits::request_timeout) if that is too long. The
/// same holds for a response whose body is completely in the server's send buffer (a body in one
/// piece goes there whole), but only the end of its connection ends it, as
/// [`max_age`](crate::Limits::max_age) does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct MinRate {
    pub(crate) bytes_per_second: u64,
    pub(crate) window: Duration,
}

impl MinRate {
    /// Requires at least `bytes_per_second`, averaged over a `window` of waiting for the client. So
    /// the client may be silent for up to `window`. A window below 1 ms becomes 1 ms.
    pub const fn new(bytes_per_second: u64, window: Duration) -> Self {
        Self { bytes_per_second, window }
    }

    /// Is the rate higher than that of `bytes` in the time `waited`?
    pub(crate) fn is_above(self, bytes: u64, waited: Duration) -> bool {
        (bytes as f64) < self.bytes_per_second as f64 * waited.as_secs_f64()
    }

    pub(super) fn clamped(self) -> Self {
        Self { window: self.window.clamp(SHORTEST_TIMEOUT, LONGEST_TIMEOUT), ..self }
    }
}

/// How many requests one peer may send (a token bucket), for
/// [`Limits::peer_rate`](crate::Limits::peer_rate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a setter returns the changed rate"]
pub struct PeerRate {
    pub(crate) requests_per_second: u32,
    pub(crate) burst: u32,
}

impl PeerRate {
    /// Allows `requests_per_second`, from 1 to 1,000,000,000. By default the same number may arrive
    /// at once. A value out of range becomes the nearest value in the range.
    pub const fn new(requests_per_second: u32) -> Self {
        Self { requests_per_second, burst: requests_per_second }
    }

    /// Sets how many requests may arrive at once, at least 1. 0 becomes 1. The default is the
    /// number of requests per second.
    pub const fn burst(mut self, requests: u32) -> Self {
        self.burst = requests;
        self
    }

    pub(super) fn clamped(self) -> Self {
        Self {
            requests_per_second: self.requests_per_second.clamp(1, 1_000_000_000),
            burst: self.burst.max(1),
        }
    }
}
