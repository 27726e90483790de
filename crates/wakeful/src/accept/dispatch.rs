//! One loop that accepts for all, and hands each connection to the loop that its [`Placement`]
//! chooses.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use super::arrival::Arrival;
use super::connection::Connection;
use super::inbox::Inbox;
use super::loop_server::LoopServer;
use super::routes::Routes;
use super::strategy::AcceptStrategy;
use crate::balance::counts::Counts;
use crate::balance::dispatch_placement::{Picker, Placement};

/// What each loop has of a server's dispatching: each an inbox, and the first loop the dispatcher,
/// if there is one.
pub(super) struct Dispatch {
    pub(super) routes: Arc<Routes>,
    dispatcher: Option<Dispatcher>,
    inboxes: std::vec::IntoIter<Inbox>,
}

impl Dispatch {
    pub(super) fn new(strategy: AcceptStrategy, counts: &Arc<Counts>, loops: usize) -> Self {
        let (routes, receivers) = Routes::new(counts, loops);
        let inbox = |arrivals| Inbox { arrivals, routes: routes.clone() };
        let inboxes: Vec<_> = receivers.into_iter().map(inbox).collect();
        let dispatcher = match strategy {
            AcceptStrategy::Dispatch(placement) => Some(Dispatcher::new(routes.clone(), placement)),
            AcceptStrategy::Exclusive | AcceptStrategy::ReusePort => None,
        };
        Self { routes, dispatcher, inboxes: inboxes.into_iter() }
    }

    /// The next loop's, in the order of the loops' numbers.
    pub(super) fn of_next_loop(&mut self) -> (Option<Dispatcher>, Option<Inbox>) {
        (self.dispatcher.take(), self.inboxes.next())
    }
}

/// The loop that accepts. What was handed over is served also when it has ended, but nothing more
/// can be.
#[derive(Debug)]
pub(super) struct Dispatcher {
    routes: Arc<Routes>,
    picker: RefCell<Picker>,
}

impl Dispatcher {
    fn new(routes: Arc<Routes>, placement: Placement) -> Self {
        let picker = RefCell::new(Picker::new(placement, routes.loops()));
        Self { routes, picker }
    }

    /// The loop that gets the next connection, of the first `active`.
    pub(super) fn pick(&self, active: usize) -> usize {
        let mut picker = self.picker.borrow_mut();
        picker.set_among(active);
        picker.pick(|number| self.routes.load(number))
    }

    /// Brings it to where it goes: by a message, or at once.
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

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.routes.close();
    }
}
