//! What a draining server does with the connections in a listener's backlog: it serves them, and
//! then closes the listener. If another process has the socket, too, the server serves as many as
//! it has room for, and leaves the others in the backlog, for another worker or the next server:
//! unless all of these processes end, which [`SharedListener::let_nobody_in`] has told them, or
//! this is a worker without a master.
//!
//! The limit of connections still applies, and descriptors may be short. Permits and descriptors
//! become free when open connections close, and these close when they are told of the drain. So a
//! loop that cannot continue has the connections of all loops told at once. Otherwise they are told
//! when all listeners are closed.
//!
//! An administrator may have lowered the limit of descriptors below the number of open ones
//! (`prlimit`). Then a freed descriptor does not help unless its number is below the limit. So the
//! soft limit is raised to the hard one again. If that is too low as well, the loop's reserve is
//! given to the connections, one after the other. Connections that could not be accepted by the end
//! of the grace period are counted and logged.

use std::future::Future;
use std::rc::Rc;
use std::thread;

use super::accept_failed::{Backoff, close_what_waits, lacks_descriptors};
use super::connection::Connection;
use super::descriptors::Descriptors;
use super::loop_server::LoopServer;
use super::route::Route;
use super::syn_filter;
use crate::balance::siblings::OurTurn;
use crate::net::Listener;
use crate::sys::panics;
use crate::task::consume_budget;

/// The most connections that a draining server takes from one backlog, however many come. The
/// kernel keeps a backlog's length in 16 bits, or bounds it by `net.core.somaxconn`, 4,096 by
/// default.
const GREATEST_BACKLOG: u32 = 65_536;

/// Serves what the backlog holds, before the listener closes.
///
/// # Cancel safety
/// Dropping it closes what is left in the backlog, as far as there is a descriptor for that, and
/// counts it.
pub(super) async fn accept_out<H, F>(
    listener: Rc<Listener>,
    place: usize,
    server: Rc<LoopServer<H>>,
    route: Rc<Route>,
) where
    H: Fn(Connection) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    let mut backlog = Backlog { listener: &listener, server: &server, is_done: false };
    let mut backoff = Backoff::default();
    let mut taken = 0;
    while taken < GREATEST_BACKLOG {
        let permit = match server.shared.limit.try_permit() {
            Some(permit) => permit,
            None if others_serve(&listener, &server) || listener.is_empty() => break,
            None => {
                server.shared.tell_connections();
                server.shared.limit.permit().await
            }
        };
        // The permit may be that of a connection that was aborted when the grace period ended.
        if server.shared.counts.is_over() {
            return;
        }
        let Some(accepted) = listener.try_accept_detached().transpose() else { break };
        let served = accepted.and_then(|accepted| route.bring(accepted, place, permit, &server));
        match served {
            Ok(()) => taken += 1,
            // accept(2) reports EMFILE even if no connection waits.
            Err(_) if others_serve(&listener, &server) || listener.is_empty() => break,
            Err(error) => {
                server.shared.tell_connections();
                let is_helped =
                    lacks_descriptors(&error) && (raises_limit() || server.reserve.give_up());
                if !is_helped && backoff.after_in_drain(&error, &listener, &server).await.is_break()
                {
                    break;
                }
            }
        }
        consume_budget().await;
    }
    backlog.is_done = true;
}

/// Are the remaining connections left to another worker or the next server? They are if another
/// process may have the socket, unless a filter lets nobody in: then all processes that have the
/// socket end.
fn is_left_to_others(listener: &Listener) -> bool {
    listener.is_lent() && !syn_filter::is_attached(listener.fd())
}

/// Does another worker or the next server serve the remaining connections, as far as is known? A
/// worker whose master is gone does not rely on it: the other workers may end as well.
fn others_serve<H>(listener: &Listener, server: &LoopServer<H>) -> bool {
    let is_orphan = || server.shared.balancer.turn().is_some_and(OurTurn::is_orphaned);
    is_left_to_others(listener) && !is_orphan()
}

/// Raises the soft limit of descriptors to the hard one. `false`: it was there already, or the call
/// was refused.
fn raises_limit() -> bool {
    let before = Descriptors::limit();
    let is_raised = Descriptors::raise_limit().is_ok() && Descriptors::limit() != before;
    if is_raised {
        panics::log!(
            info,
            soft = before,
            "raised the limit of open descriptors (RLIMIT_NOFILE) to the hard limit, for connections that wait while the server drains"
        );
    }
    is_raised
}

/// Closes and counts what is left in the backlog if the loop ends before the backlog is empty,
/// because the grace period is over.
struct Backlog<'a, H> {
    listener: &'a Listener,
    server: &'a LoopServer<H>,
    is_done: bool,
}

impl<H> Drop for Backlog<'_, H> {
    fn drop(&mut self) {
        // After a panic, the supervisor starts the drain of the backlog again.
        if self.is_done || thread::panicking() || is_left_to_others(self.listener) {
            return;
        }
        let close = || close_what_waits(self.listener, self.server.counts(), GREATEST_BACKLOG);
        let closed = self.server.reserve.lend(close).unwrap_or(0);
        // Without a descriptor the server cannot even close these connections: the kernel resets
        // them.
        let waiting = self.listener.waiting();
        self.server.shared.counts.add_left(self.listener.raw_fd(), closed, waiting);
        if closed > 0 || waiting > 0 {
            panics::log!(
                warn,
                closed,
                waiting,
                "the server ended before it could serve all connections of the backlog"
            );
        }
    }
}
