//! What a connection answers when its server needs its place: `room` asks, and `draining` keeps the
//! connections that may be asked.

use std::time::Instant;

/// What a connection is doing, for a server that needs to close one. See [`GivesWay::standing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has waited for a request since this instant: nothing is in flight.
    Idle(Instant),
    /// It handles a request, and may close when the request is answered. The number is how many
    /// requests it has had.
    Busy(u64),
    /// It handles a request, and may close before the request is answered. It has been open since
    /// this instant.
    Open(Instant),
    /// It should stay open.
    Stays,
}

/// A connection that a server at its limit of connections may ask to close: see
/// [`Draining::started_or_asked`](super::Draining::started_or_asked).
pub trait GivesWay {
    /// Returns what the connection is doing now. While other connections wait, the server calls
    /// this method for each connection of the loop. So it should be cheap and change nothing. A
    /// connection for which it panics stays.
    fn standing(&self) -> Standing;
}
