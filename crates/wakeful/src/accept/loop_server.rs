//! One loop's side of a server: what it needs to serve connections, and the task of each
//! connection.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::arrival::{Arrival, Held, Refused};
use super::connection::Connection;
use super::draining::Draining;
use super::gate::AtGate;
use super::limit::{Limit, Permit};
use super::moving::{Mover, Moving};
use super::open_listeners::OpenListener;
use super::reserve::Reserve;
use crate::balance::balancer::Balancer;
use crate::balance::counts::{Counts, LoopCounts};
use crate::event_loop::spawn_at;
use crate::net::Attached;
use crate::net::accepted::Accepted;

/// What all loops of a server share.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    /// Disconnected when the last connection has closed and no loop accepts any more.
    pub(super) open: mpsc::Sender<Infallible>,
    pub(super) limit: Limit,
    pub(super) counts: Arc<Counts>,
    pub(super) balancer: Arc<Balancer>,
    /// Closed to tell the connections of the drain before the listeners close.
    pub(super) tell: async_channel::Sender<Infallible>,
    /// Opens when all loops have started.
    pub(super) gate: AtGate,
}

impl Shared {
    /// Tells the connections of all loops of the drain, unless they have been told.
    pub(super) fn tell_connections(&self) {
        self.tell.close();
    }
}

/// One loop's side of a server.
#[derive(Debug)]
pub(super) struct LoopServer<H> {
    pub(super) number: usize,
    pub(super) handler: H,
    /// The place in the source that names the server's connections in metrics and logs.
    pub(super) started_at: &'static Location<'static>,
    pub(super) shared: Shared,
    pub(super) draining: Draining,
    pub(super) reserve: Reserve,
    /// How this loop's connections move to other loops.
    pub(super) mover: Rc<Mover>,
    /// The listeners that this loop accepts from, by their places.
    pub(super) open: Vec<OpenListener>,
}

impl<H> LoopServer<H> {
    pub(super) fn counts(&self) -> &LoopCounts {
        self.shared.counts.of(self.number)
    }

    /// Completes when this loop may accept: all loops have started.
    pub(super) async fn may_accept(&self) {
        self.shared.gate.opens().await;
        // The first loop is always active, so it joins the kernel's list now.
        if self.number == 0 {
            self.shared.balancer.begin();
        }
    }
}

impl<H, F> LoopServer<H>
where
    H: Fn(Connection) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    /// Makes the [`Arrival`] of a connection that this loop has accepted from `listener`, and that
    /// goes to loop `number`.
    pub(super) fn arrived(
        &self,
        accepted: Accepted,
        listener: usize,
        permit: Permit,
        number: usize,
    ) -> Arrival {
        let Shared { counts, open, .. } = &self.shared;
        let held = Held::new(counts.clone(), number, listener, open.clone(), permit);
        Arrival::new(accepted, held, self.number)
    }

    /// Serves the connection on this loop.
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
        spawn_at(self.started_at, ConnectionTask { stage, held: Hold(held) }).detach();
        Ok(())
    }
}

/// What an open connection holds. It is given back when the connection's task ends, even if the
/// handler has given `Moving` to another task.
struct Hold(Rc<RefCell<Option<Held>>>);

impl Drop for Hold {
    fn drop(&mut self) {
        // Nothing is left here if the connection has moved, because the contents moved with it.
        let held = self.0.take();
        drop(held);
    }
}

pin_project! {
    /// The task of a connection. The handler is called here, and not where the connection was
    /// accepted: a panic in it ends this task alone. An `async` block would store the handler's
    /// future twice.
    struct ConnectionTask<H, F> {
        #[pin]
        stage: Stage<H, F>,
        // This field is dropped after the stage, so the socket is closed before another connection
        // takes its place.
        held: Hold,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<H, F> {
        Arrived { arrived: Option<(Rc<LoopServer<H>>, Connection)> },
        Served { #[pin] handler: F },
        Over,
    }
}

impl<H, F> Future for ConnectionTask<H, F>
where
    H: Fn(Connection) -> F,
    F: Future<Output = ()>,
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if let StageProjection::Arrived { arrived } = this.stage.as_mut().project()
            && let Some((server, connection)) = arrived.take()
        {
            let handler = (server.handler)(connection);
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
