//! What a connection answers when its server needs its place: `room` asks, and `draining` keeps the
//! connections that may be asked.

use std::time::Instant;

/// What a connection is doing, for a server that needs to close one. See [`GivesWay::standing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has waited for a request since this instant: nothing is in flight.
    Idle(Instant),
    /// It handles a request, and may close after it. It has had this many requests.
    Busy(u64),
    /// It handles a request, and may close in the middle of it. It has been open since this
    /// instant.
    Open(Instant),
    /// It should stay open.
    Stays,
}

/// A connection that a server at its limit of connections may ask to close: see
/// [`Draining::started_or_asked`](super::Draining::started_or_asked).
pub trait GivesWay {
    /// Returns what the connection is doing now. The server calls it for each connection of the
    /// loop while others wait, so it should be cheap and change nothing.
    fn standing(&self) -> Standing;
}
