//! What a connection says when its server needs its place: `room` asks, and `draining` keeps who
//! may be asked.

use std::time::Instant;

/// What a connection is doing, for a server that needs its place: see
/// [`GivesWay::standing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has waited for a request since then: nothing is in flight.
    Idle(Instant),
    /// It is doing something, may close when that is done, and has had so many requests.
    Busy(u64),
    /// It is doing something, has been open since then, and may close in the middle of it.
    Open(Instant),
    /// It should stay.
    Stays,
}

/// A connection that a server at its limit of connections may ask to close: see
/// [`Draining::started_or_asked`](super::Draining::started_or_asked).
pub trait GivesWay {
    /// What it is doing now. Called while connections wait for a place, for each connection of the
    /// loop: it should only look.
    fn standing(&self) -> Standing;
}
