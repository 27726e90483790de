//! A connection on its way to the loop that serves it, and the resources of an open one.

use std::any::Any;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, mpsc};

use super::limit::Permit;
use crate::balance::counts::Counts;
use crate::net::accepted::Accepted;
use crate::net::{Attached, DetachedStream, PeerAddr};
use crate::sys::panics;

/// What an open connection holds. It is given back when the connection's handler ends, for any
/// reason.
#[derive(Debug)]
pub(super) struct Held {
    /// What the handler hands to the handler on the next loop.
    pub(super) carried: Option<Box<dyn Any + Send>>,
    counts: Arc<Counts>,
    /// The loop that serves the connection, or will serve it.
    number: usize,
    /// The listener that accepted the connection.
    pub(super) listener: usize,
    _open: mpsc::Sender<Infallible>,
    _permit: Permit,
}

impl Held {
    /// Counts one more open connection for loop `number`, which serves it or will serve it.
    pub(super) fn new(
        counts: Arc<Counts>,
        number: usize,
        listener: usize,
        open: mpsc::Sender<Infallible>,
        permit: Permit,
    ) -> Self {
        counts.of(number).one_more_open();
        Self { carried: None, counts, number, listener, _open: open, _permit: permit }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Dropping the handler's value may panic. The connection may be lost on its way, in a task
        // that serves other connections too.
        panics::discard(self.carried.take());
        self.counts.of(self.number).one_less_open();
    }
}

/// A connection that was accepted, on its way to the loop that serves it. If it is dropped on the
/// way, it is closed, and counted as turned away.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) stream: Option<DetachedStream>,
    pub(super) peer: PeerAddr,
    pub(super) held: Option<Held>,
    /// The loop that accepted it.
    accepted_by: usize,
    /// How many loops have refused it.
    pub(super) refusals: usize,
    /// Whether another loop has served it before.
    pub(super) moved: bool,
}

impl Arrival {
    /// A connection that loop `accepted_by` has accepted.
    pub(super) fn new(accepted: Accepted, held: Held, accepted_by: usize) -> Self {
        let (stream, held) = (Some(accepted.stream), Some(held));
        Self { stream, peer: accepted.peer, held, accepted_by, refusals: 0, moved: false }
    }

    /// A connection that loop `from` has served, and gives to loop `to`.
    pub(super) fn moved(stream: DetachedStream, peer: PeerAddr, held: Held, to: usize) -> Self {
        let from = held.number;
        held.counts.of(from).count_moved();
        let (stream, held) = (Some(stream), Some(held));
        let mut arrival = Self { stream, peer, held, accepted_by: from, refusals: 0, moved: true };
        arrival.goes_to(to);
        arrival
    }

    /// Changes the destination to loop `number`.
    pub(super) fn goes_to(&mut self, number: usize) {
        if let Some(held) = &mut self.held {
            held.counts.of(held.number).one_less_open();
            held.counts.of(number).one_more_open();
            held.number = number;
        }
    }

    /// Returns the connection to loop `number`, which is that of this thread, and from which it
    /// should have moved.
    ///
    /// # Errors
    /// The loop cannot watch it (`max_user_watches`).
    pub(super) fn stays_on(
        mut self: Box<Self>,
        number: usize,
    ) -> Result<(Attached, Held), Box<Self>> {
        self.goes_to(number);
        let attached = self.stream.take().and_then(|stream| stream.attach().ok());
        let Some(attached) = attached else { return Err(self) };
        let Some(held) = self.held.take() else { return Err(self) };
        Ok((attached, held))
    }

    /// The loop that serves the connection, or will serve it.
    pub(super) fn destination(&self) -> usize {
        self.held.as_ref().map_or(self.accepted_by, |held| held.number)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            held.counts.of(self.accepted_by).count_turned_away();
        }
    }
}

/// A connection that its loop could not watch, and why.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) arrival: Arrival,
    pub(super) error: io::Error,
}
