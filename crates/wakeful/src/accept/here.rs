//! One loop's side of a server: what it needs to serve a connection, and what an open one holds.

use std::any::Any;
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::balance::Balance;
use super::dispatch::Dispatcher;
use super::limit::{Limit, Permit};
use super::moving::{Mover, Moving};
use super::open_listeners::OpenListener;
use super::trouble::Reserve;
use super::{Connection, Counts, Draining, LoopCounts};
use crate::event_loop::spawn_at;
use crate::net::accept::Accepted;
use crate::net::{Attached, DetachedStream, PeerAddr};
use crate::sys::panics;

/// What all loops of a server share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    /// Disconnected when the last connection has closed and nobody accepts any more.
    pub(super) open: mpsc::Sender<Infallible>,
    pub(super) limit: Limit,
    pub(super) counts: Arc<Counts>,
    pub(super) balance: Arc<Balance>,
    /// Closed when the connections are to be told of the drain before the listeners close.
    pub(super) tell: async_channel::Sender<Infallible>,
}

impl Shared {
    /// Has the connections of all loops told of the drain, if they are not.
    pub(super) fn tell_connections(&self) {
        self.tell.close();
    }
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
        // A handler's value. The connection may be lost on its way, in a task that serves others too.
        panics::discard(self.carried.take());
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
    /// Names its connections in metrics and logs.
    pub(super) started_at: &'static Location<'static>,
    pub(super) shared: Shared,
    pub(super) draining: Draining,
    pub(super) reserve: Reserve,
    /// How its connections go on to other loops.
    pub(super) mover: Rc<Mover>,
    /// The listeners that it accepts from, by their place.
    pub(super) open: Vec<OpenListener>,
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
    pub(super) fn serve(self: &Rc<Self>, mut arrival: Arrival) -> Result<(), Box<Refused>> {
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
        let connection = Connection { stream, peer, listener, draining, unread, moving };
        let stage = Stage::Arrived { arrived: Some((self.clone(), connection)) };
        spawn_at(self.started_at, Serving { stage, held: Hold(held) }).detach();
        Ok(())
    }
}

/// What an open connection holds, which ends with its task. Its handler may have left `Moving` with somebody else.
struct Hold(Rc<RefCell<Option<Held>>>);

impl Drop for Hold {
    fn drop(&mut self) {
        // It has gone along, if the connection has moved.
        let held = self.0.take();
        drop(held);
    }
}

pin_project! {
    /// The task of a connection. The handler is called here, and not where the connection was accepted: a panic in it ends this
    /// task alone. An `async` block would store the handler's future twice.
    struct Serving<H, F> {
        #[pin]
        stage: Stage<H, F>,
        // Dropped after the stage: the socket is closed before another connection may take its place.
        held: Hold,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<H, F> {
        Arrived { arrived: Option<(Rc<Here<H>>, Connection)> },
        Served { #[pin] handler: F },
        Over,
    }
}

impl<H, F> Future for Serving<H, F>
where
    H: Fn(Connection) -> F,
    F: Future<Output = ()>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if let StageProjection::Arrived { arrived } = this.stage.as_mut().project()
            && let Some((here, connection)) = arrived.take()
        {
            let handler = (here.handler)(connection);
            this.stage.set(Stage::Served { handler });
        }
        if let StageProjection::Served { handler } = this.stage.as_mut().project()
            && handler.poll(cx).is_pending()
        {
            return Poll::Pending;
        }
        this.stage.set(Stage::Over);
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
        here: &Rc<Here<H>>,
    ) -> io::Result<()>
    where
        H: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        match self {
            Self::Here => {
                let arrival = here.arrived(accepted, listener, permit, here.number);
                here.shared.balance.accepted(here.number, listener);
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
