//! One loop accepts for all, and hands each connection to the loop that its [`Placement`] chooses.
//! While that loop is blocked, another one accepts (`stand_in`).

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use super::arrival::Arrival;
use super::connection::Connection;
use super::inbox::Inbox;
use super::loop_server::LoopServer;
use super::routes::Routes;
use super::strategy::{AcceptStrategy, DISPATCHER};
use crate::balance::counts::Counts;
use crate::balance::dispatch_placement::{Picker, Placement};

/// What dispatching gives to each loop: an inbox, and, if one loop accepts for all, what it needs
/// to do so.
pub(super) struct Dispatch {
    pub(super) routes: Arc<Routes>,
    placement: Option<Placement>,
    /// Only the first loop gets it.
    closes: Option<ClosesInboxes>,
    inboxes: std::vec::IntoIter<Inbox>,
}

impl Dispatch {
    pub(super) fn new(strategy: AcceptStrategy, counts: &Arc<Counts>, loops: usize) -> Self {
        let (routes, receivers) = Routes::new(counts, loops);
        let inbox = |arrivals| Inbox { arrivals, routes: routes.clone() };
        let inboxes: Vec<_> = receivers.into_iter().map(inbox).collect();
        let placement = match strategy {
            AcceptStrategy::Dispatch(placement) => Some(placement),
            AcceptStrategy::Exclusive | AcceptStrategy::ReusePort => None,
        };
        let closes = placement.map(|_| ClosesInboxes(routes.clone()));
        Self { routes, placement, closes, inboxes: inboxes.into_iter() }
    }

    /// The parts of the next loop, in the order of the loops' numbers.
    pub(super) fn of_next_loop(&mut self) -> (Option<Dispatcher>, Option<Inbox>) {
        let dispatcher = self.placement.map(|placement| Dispatcher {
            picker: RefCell::new(Picker::new(placement, self.routes.loops())),
            routes: self.routes.clone(),
            closes: self.closes.take(),
        });
        (dispatcher, self.inboxes.next())
    }
}

/// A loop that accepts for all: the first loop, or one that stands in for it. When the first loop
/// has ended, the other loops still serve the connections that it handed over, but no more can be
/// handed over.
#[derive(Debug)]
pub(super) struct Dispatcher {
    routes: Arc<Routes>,
    picker: RefCell<Picker>,
    /// Only the first loop has it.
    closes: Option<ClosesInboxes>,
}

impl Dispatcher {
    /// Is this a stand-in for loop `number`? The first loop may be blocked again at any moment, so
    /// it gets nothing from a stand-in.
    pub(super) fn avoids(&self, number: usize) -> bool {
        self.closes.is_none() && number == DISPATCHER
    }

    /// Picks the loop that gets the next connection, one of the first `active`.
    pub(super) fn pick(&self, active: usize) -> usize {
        let mut picker = self.picker.borrow_mut();
        picker.set_among(active);
        picker.pick(|number| self.routes.load(number))
    }

    /// Brings the connection to its loop: by a message, or at once if that is this loop.
    pub(super) fn place<H, F>(&self, arrival: Arrival, server: &Rc<LoopServer<H>>)
    where
        H: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let number = arrival.destination();
        if number != server.number {
            self.routes.send(arrival, number);
        } else if let Err(refused) = server.serve(arrival) {
            self.routes.refused(*refused);
        }
    }
}

/// Closes all inboxes when the first loop accepts no more.
#[derive(Debug)]
struct ClosesInboxes(Arc<Routes>);

impl Drop for ClosesInboxes {
    fn drop(&mut self) {
        self.0.close();
    }
}
