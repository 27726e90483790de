//! How connections go from loop to loop: one loop that accepts for all hands them to the others, and those that [move](super::Moving) go the same way.
//!
//! Each loop has an inbox, which all loops can put connections into; a loop that cannot take one passes it on. Nothing
//! is lost on the way but by being counted: an inbox that ends, with its loop or with the server, passes on what is in it, and a
//! connection that nobody takes is closed and counted as turned away (`Arrival`).

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_channel::{Receiver, Sender};

use super::here::{Arrival, Here, Refused};
use super::{AcceptStrategy, Connection, Counts, Picker, Placement};
use crate::sys::panics;
use crate::task::consume_budget;

/// The ways into all inboxes.
#[derive(Debug)]
pub(super) struct Routes {
    inboxes: Box<[Sender<Arrival>]>,
    counts: Arc<Counts>,
    /// That somebody was turned away: once, because it may be everybody.
    logged: AtomicBool,
}

impl Routes {
    /// And the inboxes, in the order of the loops' numbers.
    fn new(counts: &Arc<Counts>, loops: usize) -> (Arc<Self>, Vec<Inbox>) {
        let (inboxes, receivers): (Vec<_>, Vec<_>) =
            (0..loops).map(|_| async_channel::unbounded()).unzip();
        let routes = Arc::new(Self {
            inboxes: inboxes.into(),
            counts: counts.clone(),
            logged: AtomicBool::new(false),
        });
        let inbox = |arrivals| Inbox { arrivals, routes: routes.clone() };
        let inboxes = receivers.into_iter().map(inbox).collect();
        (routes, inboxes)
    }

    /// Does loop `number` take no more?
    pub(super) fn is_closed(&self, number: usize) -> bool {
        self.inboxes[number].is_closed()
    }

    /// Sends it to loop `number`, or to the first one behind it that has not ended.
    pub(super) fn send(&self, mut arrival: Arrival, number: usize) {
        let loops = self.inboxes.len();
        for number in (number..loops).chain(0..number) {
            arrival.goes_to(number);
            match self.inboxes[number].try_send(arrival) {
                Ok(()) => return,
                Err(refused) => {
                    arrival = refused.into_inner();
                    self.counts.of(number).count_passed_on();
                }
            }
        }
        self.turn_away(arrival);
    }

    /// Loop `arrival.destination()` did not take it.
    fn pass_on(&self, mut arrival: Arrival) {
        arrival.refusals += 1;
        if arrival.refusals >= self.inboxes.len() {
            return self.turn_away(arrival);
        }
        let from = arrival.destination();
        self.counts.of(from).count_passed_on();
        self.send(arrival, (from + 1) % self.inboxes.len());
    }

    /// Its loop tried to take it, and could not.
    fn refused(&self, Refused { arrival, error }: Refused) {
        let number = arrival.destination();
        self.counts.of(number).count_failed();
        panics::log!(debug, %error, number, "a loop cannot take a connection");
        self.pass_on(arrival);
    }

    fn turn_away(&self, arrival: Arrival) {
        drop(arrival);
        if !self.logged.swap(true, Ordering::Relaxed) {
            // An inbox passes on what is in it while it is dropped.
            panics::log!(
                error,
                "no loop takes a connection that was accepted: it is closed, and counted"
            );
        }
    }

    /// Nothing more comes to loop `number`.
    pub(super) fn close_one(&self, number: usize) {
        self.inboxes[number].close();
    }

    fn close(&self) {
        for inbox in &self.inboxes {
            inbox.close();
        }
    }
}

/// What each loop has of a server's dispatching: each an inbox, and the first loop the dispatcher, if there is one.
pub(super) struct Dispatch {
    pub(super) routes: Arc<Routes>,
    dispatcher: Option<Dispatcher>,
    inboxes: std::vec::IntoIter<Inbox>,
}

impl Dispatch {
    pub(super) fn new(strategy: AcceptStrategy, counts: &Arc<Counts>, loops: usize) -> Self {
        let (routes, inboxes) = Routes::new(counts, loops);
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

/// The loop that accepts. What was handed over is served also when it has ended, but nothing more can be.
#[derive(Debug)]
pub(super) struct Dispatcher {
    routes: Arc<Routes>,
    picker: RefCell<Picker>,
}

impl Dispatcher {
    fn new(routes: Arc<Routes>, placement: Placement) -> Self {
        let picker = RefCell::new(Picker::new(placement, routes.inboxes.len()));
        Self { routes, picker }
    }

    /// The loop that gets the next connection, of the first `active`.
    pub(super) fn pick(&self, active: usize) -> usize {
        let mut picker = self.picker.borrow_mut();
        picker.set_among(active);
        picker.pick(|number| {
            // One that has ended is less loaded than any other, for ever.
            let ended = self.routes.inboxes[number].is_closed();
            if ended { usize::MAX } else { self.routes.counts.of(number).open() }
        })
    }

    /// Brings it to where it goes: by a message, or at once.
    pub(super) fn place<H, F>(&self, arrival: Arrival, here: &Rc<Here<H>>)
    where
        H: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let number = arrival.destination();
        if number != here.number {
            self.routes.send(arrival, number);
        } else if let Err(refused) = here.serve(arrival) {
            self.routes.refused(*refused);
        }
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.routes.close();
    }
}

/// What was handed to a loop.
#[derive(Debug)]
pub(super) struct Inbox {
    arrivals: Receiver<Arrival>,
    routes: Arc<Routes>,
}

impl Inbox {
    /// Serves what comes, until nothing more does and all is taken.
    pub(super) async fn serve<H, F>(self: Rc<Self>, here: Rc<Here<H>>)
    where
        H: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        while let Ok(arrival) = self.arrivals.recv().await {
            if let Err(refused) = here.serve(arrival) {
                self.routes.refused(*refused);
            }
            consume_budget().await;
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.arrivals.close();
        while let Ok(arrival) = self.arrivals.try_recv() {
            self.routes.pass_on(arrival);
        }
    }
}
