//! What a connection answers when its server needs its place: `room` asks, and `draining` keeps the
//! connections that may be asked.

use std::time::Instant;

/// What a connection is doing, for a server that needs its place: see
/// [`GivesWay::standing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has waited for a request since then: nothing is in flight.
    Idle(Instant),
    /// It is doing something, and may close when that is done. It has had this many requests.
    Busy(u64),
    /// It is doing something, and may close in the middle of it. It has been open since then.
    Open(Instant),
    /// It should stay.
    Stays,
}

/// A connection that a server at its limit of connections may ask to close: see
/// [`Draining::started_or_asked`](super::Draining::started_or_asked).
pub trait GivesWay {
    /// Returns what the connection is doing now. It is called for each connection of the loop while
    /// others wait for a place, so it should be cheap and change nothing.
    fn standing(&self) -> Standing;
}
