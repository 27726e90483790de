//! How connections get from loop to loop: a loop that accepts for all hands them to the others, and
//! connections that [move](super::Moving) take the same path.
//!
//! Each loop has an inbox, into which all loops can put connections. A loop that cannot take a
//! connection passes it on. No connection is lost without being counted: an inbox that ends, with
//! its loop or with the server, passes its connections on, and a connection that no loop takes is
//! closed and counted as turned away (`Arrival`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_channel::{Receiver, Sender};

use super::arrival::{Arrival, Refused};
use crate::balance::counts::Counts;
use crate::sys::panics;

/// The senders of all inboxes.
#[derive(Debug)]
pub(super) struct Routes {
    inboxes: Box<[Sender<Arrival>]>,
    counts: Arc<Counts>,
    /// Whether a turned-away connection was logged. Only the first is, because there may be very
    /// many.
    logged: AtomicBool,
}

impl Routes {
    /// Also returns the receiving ends, in the order of the loops' numbers.
    pub(super) fn new(counts: &Arc<Counts>, loops: usize) -> (Arc<Self>, Vec<Receiver<Arrival>>) {
        let (inboxes, receivers): (Vec<_>, Vec<_>) =
            (0..loops).map(|_| async_channel::unbounded()).unzip();
        let routes = Arc::new(Self {
            inboxes: inboxes.into(),
            counts: counts.clone(),
            logged: AtomicBool::new(false),
        });
        (routes, receivers)
    }

    /// How many inboxes there are.
    pub(super) fn loops(&self) -> usize {
        self.inboxes.len()
    }

    /// The load of loop `number`: its open connections. The load of a loop that has ended is the
    /// greatest possible one, because otherwise it would be the least loaded loop for ever.
    pub(super) fn load(&self, number: usize) -> usize {
        if self.is_closed(number) { usize::MAX } else { self.counts.of(number).open() }
    }

    /// Has loop `number` ended, so that it takes no more?
    pub(super) fn is_closed(&self, number: usize) -> bool {
        self.inboxes[number].is_closed()
    }

    /// Sends the connection to loop `number`, or to the next loop that has not ended.
    pub(super) fn send(&self, arrival: Arrival, number: usize) {
        if let Err(arrival) = self.try_send(arrival, number) {
            self.turn_away(*arrival);
        }
    }

    /// Does what [`send`](Self::send) does.
    ///
    /// # Errors
    /// All loops have ended: the connection comes back.
    pub(super) fn try_send(&self, mut arrival: Arrival, number: usize) -> Result<(), Box<Arrival>> {
        let loops = self.inboxes.len();
        for number in (number..loops).chain(0..number) {
            arrival.goes_to(number);
            match self.inboxes[number].try_send(arrival) {
                Ok(()) => return Ok(()),
                Err(refused) => {
                    arrival = refused.into_inner();
                    self.counts.of(number).count_passed_on();
                }
            }
        }
        Err(Box::new(arrival))
    }

    /// Sends on a connection that loop `arrival.destination()` did not take.
    pub(super) fn pass_on(&self, mut arrival: Arrival) {
        arrival.refusals += 1;
        if arrival.refusals >= self.inboxes.len() {
            return self.turn_away(arrival);
        }
        let from = arrival.destination();
        self.counts.of(from).count_passed_on();
        self.send(arrival, (from + 1) % self.inboxes.len());
    }

    /// Sends on a connection that its loop tried to take, and could not.
    pub(super) fn refused(&self, Refused { arrival, error }: Refused) {
        let number = arrival.destination();
        self.counts.of(number).count_failed();
        self.pass_on(arrival);
        // The subscriber is user code, which may block. Until then the connection would wait.
        panics::log!(debug, %error, number, "a loop cannot take a connection");
    }

    /// Closes a connection that no loop takes.
    pub(super) fn turn_away(&self, arrival: Arrival) {
        drop(arrival);
        if !self.logged.swap(true, Ordering::Relaxed) {
            // If the closed inbox still holds connections, its drop passes them on.
            panics::log!(
                error,
                "no loop can take an accepted connection: it is closed, and counted as failed"
            );
        }
    }

    /// Sends nothing more to loop `number`.
    pub(super) fn close_one(&self, number: usize) {
        self.inboxes[number].close();
    }

    pub(super) fn close(&self) {
        for inbox in &self.inboxes {
            inbox.close();
        }
    }
}
