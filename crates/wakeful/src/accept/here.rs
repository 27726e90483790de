//! One loop's side of a server: what it needs to serve a connection, and what an open one holds.

use std::any::Any;
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::balance::Balance;
use super::dispatch::Dispatcher;
use super::limit::{Limit, Permit};
use super::moving::{Mover, Moving};
use super::trouble::Reserve;
use super::{Connection, Counts, Draining, LoopCounts};
use crate::event_loop::spawn;
use crate::net::accept::Accepted;
use crate::net::{Attached, DetachedStream, PeerAddr};

/// What all loops of a server share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    /// Disconnected when the last connection has closed and nobody accepts any more.
    pub(super) open: mpsc::Sender<Infallible>,
    pub(super) limit: Limit,
    pub(super) counts: Arc<Counts>,
    pub(super) balance: Arc<Balance>,
}

/// What an open connection holds; given back when its handler ends, however it does.
#[derive(Debug)]
pub(super) struct Held {
    /// What its handler wants to have on the next loop.
    pub(super) carried: Option<Box<dyn Any + Send>>,
    counts: Arc<Counts>,
    /// The loop that it is on, or on its way to.
    number: usize,
    /// Where it came in.
    listener: usize,
    _open: mpsc::Sender<Infallible>,
    _permit: Permit,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.counts.of(self.number).one_less_open();
    }
}

/// A connection that was accepted, on its way to the loop that serves it. Dropped before, it is closed, and counted as turned away.
#[derive(Debug)]
pub(super) struct Arrival {
    stream: Option<DetachedStream>,
    peer: PeerAddr,
    held: Option<Held>,
    /// The loop that accepted it.
    accepted_by: usize,
    /// How many loops did not take it.
    pub(super) refusals: usize,
    /// Another loop has served it before.
    moved: bool,
}

impl Arrival {
    /// A connection that loop `from` has served, and gives to loop `to`.
    pub(super) fn moved(stream: DetachedStream, peer: PeerAddr, held: Held, to: usize) -> Self {
        let from = held.number;
        held.counts.of(from).count_moved();
        let (stream, held) = (Some(stream), Some(held));
        let mut arrival = Self { stream, peer, held, accepted_by: from, refusals: 0, moved: true };
        arrival.goes_to(to);
        arrival
    }

    /// Goes to loop `number` from now on.
    pub(super) fn goes_to(&mut self, number: usize) {
        if let Some(held) = &mut self.held {
            held.counts.of(held.number).one_less_open();
            held.counts.of(number).one_more_open();
            held.number = number;
        }
    }

    /// The loop that it goes to, or went to.
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

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Here<H> {
    pub(super) number: usize,
    pub(super) handler: H,
    pub(super) shared: Shared,
    pub(super) draining: Draining,
    pub(super) reserve: Reserve,
    /// How its connections go on to other loops.
    pub(super) mover: Rc<Mover>,
}

impl<H> Here<H> {
    pub(super) fn counts(&self) -> &LoopCounts {
        self.shared.counts.of(self.number)
    }
}

impl<H, F> Here<H>
where
    H: Fn(Connection) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    /// A connection that this loop has accepted from `listener`, for loop `number`.
    pub(super) fn arrived(
        &self,
        accepted: Accepted,
        listener: usize,
        permit: Permit,
        number: usize,
    ) -> Arrival {
        self.shared.counts.of(number).one_more_open();
        let held = Held {
            carried: None,
            counts: self.shared.counts.clone(),
            number,
            listener,
            _open: self.shared.open.clone(),
            _permit: permit,
        };
        Arrival {
            stream: Some(accepted.stream),
            peer: accepted.peer,
            held: Some(held),
            accepted_by: self.number,
            refusals: 0,
            moved: false,
        }
    }

    /// Serves it on this loop.
    ///
    /// # Errors
    /// The loop cannot watch it (`max_user_watches`): the connection comes back.
    pub(super) fn serve(&self, mut arrival: Arrival) -> Result<(), Box<Refused>> {
        let Some(stream) = arrival.stream.take() else { return Ok(()) };
        let Attached { stream, unread } = match stream.attach() {
            Ok(attached) => attached,
            Err(refused) => {
                let (stream, error) = refused.into_parts();
                arrival.stream = Some(stream);
                return Err(Box::new(Refused { arrival, error }));
            }
        };
        if !arrival.moved {
            self.counts().count_accepted();
        }
        let listener = arrival.held.as_ref().map_or(0, |held| held.listener);
        let held = Rc::new(RefCell::new(arrival.held.take()));
        let (peer, draining) = (arrival.peer, self.draining.clone());
        let moving = Moving::new(self.mover.clone(), held.clone());
        let serving =
            (self.handler)(Connection { stream, peer, listener, draining, unread, moving });
        spawn(Serving { serving: Some(serving), held }).detach();
        Ok(())
    }
}

pin_project! {
    /// The task of a connection. An `async` block would have room for the handler's future twice.
    struct Serving<F> {
        #[pin]
        serving: Option<F>,
        held: Rc<RefCell<Option<Held>>>,
    }
}

impl<F: Future<Output = ()>> Future for Serving<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if let Some(serving) = this.serving.as_mut().as_pin_mut() {
            ready!(serving.poll(cx));
        }
        // Its socket is closed before another connection may take its place.
        this.serving.set(None);
        // It has gone along, if the connection has moved.
        drop(this.held.take());
        Poll::Ready(())
    }
}

/// Where a loop brings what it accepts.
#[derive(Debug)]
pub(super) enum Route {
    /// To itself.
    Here,
    /// To whom it chooses.
    Placed(Dispatcher),
}

impl Route {
    /// # Errors
    /// This loop cannot watch it, and there is nobody else who could: it was closed.
    pub(super) fn bring<H, F>(
        &self,
        accepted: Accepted,
        listener: usize,
        permit: Permit,
        here: &Here<H>,
    ) -> io::Result<()>
    where
        H: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        match self {
            Self::Here => {
                let arrival = here.arrived(accepted, listener, permit, here.number);
                here.shared.balance.accepted(here.number);
                here.serve(arrival).map_err(|refused| refused.error)
            }
            Self::Placed(dispatcher) => {
                let number = dispatcher.pick(here.shared.balance.active());
                let arrival = here.arrived(accepted, listener, permit, number);
                dispatcher.place(arrival, here);
                Ok(())
            }
        }
    }
}
