//! One loop accepts from each of its listeners until the server stops, and then accepts what the
//! backlogs hold.

use std::convert::Infallible;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::time::Duration;

use super::accept_failed::Backoff;
use super::connection::Connection;
use super::drain_backlog::accept_out;
use super::draining::StartsAtEnd;
use super::loop_server::{LoopServer, Shared};
use super::route::Route;
use super::strategy::DISPATCHER;
use crate::event_loop::spawn;
use crate::net::Listener;
use crate::supervise::supervise;
use crate::sys::least_ttl;
use crate::task::{JoinHandle, yield_now};
use crate::time::timeout;

/// How often a loop checks whether the dispatcher is blocked, while it waits for it in a drain.
const LOOK: Duration = Duration::from_millis(10);

/// Takes connections from one listener, from when the server has started until this is aborted, or
/// the listener is broken.
pub(super) async fn accept<H, F>(
    listener: Rc<Listener>,
    place: usize,
    server: Rc<LoopServer<H>>,
    route: Rc<Route>,
) where
    H: Fn(Connection) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    server.may_accept().await;
    let mut backoff = Backoff::default();
    loop {
        let accepted = {
            let (limit, balancer) = (&server.shared.limit, &server.shared.balancer);
            limit.accept(&listener, server.counts(), balancer).await
        };
        let served =
            accepted.and_then(|(accepted, permit)| route.bring(accepted, place, permit, &server));
        match served {
            Ok(()) => {
                backoff.reset();
                server.shared.balancer.step_back_for_siblings().await;
            }
            Err(error) => {
                if backoff.after(&error, &listener, &server).await.is_break() {
                    // A loop that stands in for the dispatcher has no open listeners of its own.
                    if let Some(open) = server.open.get(place) {
                        open.broke(&error);
                    }
                    return;
                }
            }
        }
    }
}

/// The tasks of one loop that end when the server stops.
pub(super) struct Accepting<H> {
    pub(super) server: Rc<LoopServer<H>>,
    /// The loop's listeners, with the tasks that accept. A broken listener is gone with its task.
    pub(super) listeners: Vec<(Weak<Listener>, JoinHandle<()>)>,
    /// The task that accepts while the dispatcher is blocked. It ends when its channel of calls is
    /// closed.
    pub(super) stand_in: Option<(async_channel::Receiver<()>, JoinHandle<()>)>,
    pub(super) route: Rc<Route>,
    /// The task that serves connections from other loops.
    pub(super) inbox: Option<JoinHandle<()>>,
    /// Whether one loop, the dispatcher, accepts for all. It closes all inboxes after it has
    /// accepted the last connection. Without a dispatcher, each loop closes its own inbox.
    pub(super) is_dispatched: bool,
    pub(super) draining: StartsAtEnd,
}

impl<H, F> Accepting<H>
where
    H: Fn(Connection) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    /// Closes the loop's listeners when the server stops, and tells its connections.
    ///
    /// If `told` closes, it tells the connections earlier.
    pub(super) async fn end_when(
        self,
        stopped: async_channel::Receiver<Infallible>,
        told: async_channel::Receiver<Infallible>,
    ) {
        // Nothing is ever sent: `recv` returns when the channel is closed.
        let _ = stopped.recv().await;
        self.server.shared.balancer.ends();
        let draining = self.server.draining.clone();
        let may_tell = told.clone();
        let tell = spawn(async move {
            let _ = may_tell.recv().await;
            // For the same reason as the `yield_now` at the end.
            yield_now().await;
            draining.start();
        });
        if let Some((calls, stand_in)) = self.stand_in {
            calls.close();
            let _ = stand_in.await;
        }
        let mut backlogs = Vec::new();
        for (place, (listener, accepting)) in self.listeners.into_iter().enumerate() {
            let Some(listener) = listener.upgrade() else { continue };
            accepting.abort();
            // After this, no other task keeps the listener open.
            let _ = accepting.await;
            if !self.server.shared.gate.is_open() {
                // The start has failed. Others that have the socket take what its backlog holds.
                continue;
            }
            let (server, route) = (self.server.clone(), self.route.clone());
            let accept_out =
                move || accept_out(listener.clone(), place, server.clone(), route.clone());
            backlogs.push(spawn(supervise("accepting what the backlog holds", accept_out)));
        }
        for backlog in backlogs {
            let _ = backlog.await;
        }
        drop(self.route);
        if let Some(inbox) = self.inbox {
            if !self.is_dispatched {
                self.server.mover.routes.close_one(self.server.number);
            }
            if self.is_dispatched && self.server.number != DISPATCHER {
                dispatcher_ends(inbox, &self.server.shared).await;
            } else {
                let _ = inbox.await;
            }
        }
        // Connections that have just come begin before they are told to end, so that a request that
        // came with its connection is answered.
        yield_now().await;
        // The kernel may have dropped the first bytes of some, while it kept new clients out. These
        // send them again.
        let until_heard = least_ttl::until_heard();
        if !until_heard.is_zero() {
            let _ = timeout(until_heard, told.recv()).await;
        }
        drop(self.draining);
        tell.abort();
    }
}

/// Waits until the dispatcher has closed this loop's inbox, and its connections are served.
///
/// If the dispatcher is blocked, that may take longer than the grace period. So the connections of
/// all loops are told of the drain meanwhile. What the dispatcher brings later is still served.
async fn dispatcher_ends(mut inbox: JoinHandle<()>, shared: &Shared) {
    while timeout(LOOK, &mut inbox).await.is_err() {
        if shared.balancer.is_stuck(DISPATCHER) {
            shared.tell_connections();
            let _ = inbox.await;
            return;
        }
    }
}
