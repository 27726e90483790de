//! What a server that drains does with the connections in a listener's backlog: it serves them, and
//! closes the listener then.
//!
//! The limit of connections still holds, and descriptors may be short. Permits and descriptors come
//! back when open connections close, and these close when they are told of the drain. So the loop
//! that cannot go on has the connections of all loops told at once. Otherwise they are told when
//! all listeners are closed.

use std::future::Future;
use std::rc::Rc;
use std::thread;

use super::accept_failed::{Backoff, close_what_waits};
use super::connection::Connection;
use super::loop_server::LoopServer;
use super::route::Route;
use crate::net::Listener;
use crate::sys::panics;
use crate::task::consume_budget;

/// The kernel keeps a backlog's length in 16 bits, or bounds it by `net.core.somaxconn`, 4,096 by
/// default. A server that drains takes no more than this from one, however many come.
const GREATEST_BACKLOG: u32 = 65_536;

/// Serves what the backlog holds, before the listener closes.
///
/// # Cancel safety
/// Dropping it closes what is left in the backlog, and counts it.
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
    for _ in 0..GREATEST_BACKLOG {
        let permit = match server.shared.limit.try_permit() {
            Some(permit) => permit,
            None if listener.is_empty() => break,
            None => {
                server.shared.tell_connections();
                server.shared.limit.permit().await
            }
        };
        // The permit may be that of a connection that was aborted.
        if server.shared.counts.is_over() {
            return;
        }
        let Some(accepted) = listener.try_accept_detached().transpose() else { break };
        let served = accepted.and_then(|accepted| route.bring(accepted, place, permit, &server));
        match served {
            Ok(()) => backoff.reset(),
            // accept(2) says EMFILE also when nobody waits.
            Err(_) if listener.is_empty() => break,
            Err(error) => {
                server.shared.tell_connections();
                if backoff.after(&error, &listener, &server).await.is_break() {
                    break;
                }
            }
        }
        consume_budget().await;
    }
    backlog.is_done = true;
}

/// Closes and counts what is left in the backlog if the loop ends before it is empty: the grace is
/// over.
struct Backlog<'a, H> {
    listener: &'a Listener,
    server: &'a LoopServer<H>,
    is_done: bool,
}

impl<H> Drop for Backlog<'_, H> {
    fn drop(&mut self) {
        // After a panic it is taken up again.
        if self.is_done || thread::panicking() {
            return;
        }
        let close = || close_what_waits(self.listener, self.server.counts(), GREATEST_BACKLOG);
        let closed = self.server.reserve.lend(close).unwrap_or(0);
        if closed > 0 {
            self.server.shared.counts.add_left(closed);
            panics::log!(
                warn,
                closed,
                "the server ended before it could serve all connections of the backlog"
            );
        }
    }
}
