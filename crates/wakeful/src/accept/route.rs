//! Where a loop takes the connections that it accepts.

use std::future::Future;
use std::io;
use std::rc::Rc;

use super::connection::Connection;
use super::dispatch::Dispatcher;
use super::limit::Permit;
use super::loop_server::LoopServer;
use crate::net::accepted::Accepted;

/// Where a loop takes the connections that it accepts.
#[derive(Debug)]
pub(super) enum Route {
    /// The loop serves them itself.
    Own,
    /// The dispatcher chooses a loop for each.
    Placed(Dispatcher),
}

impl Route {
    /// # Errors
    /// This loop cannot watch the connection, and no other loop may take it: it was closed.
    pub(super) fn bring<H, F>(
        &self,
        accepted: Accepted,
        listener: usize,
        permit: Permit,
        server: &Rc<LoopServer<H>>,
    ) -> io::Result<()>
    where
        H: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        match self {
            Self::Own => {
                let arrival = server.arrived(accepted, listener, permit, server.number);
                server.shared.balancer.accepted(server.number, listener);
                server.serve(arrival).map_err(|refused| refused.error)
            }
            Self::Placed(dispatcher) => {
                let balancer = &server.shared.balancer;
                let picked = dispatcher.pick(balancer.active());
                // The connection goes to this loop if the picked one is blocked.
                let is_avoided = dispatcher.avoids(picked) || balancer.is_stuck(picked);
                let number = if is_avoided { server.number } else { picked };
                let arrival = server.arrived(accepted, listener, permit, number);
                balancer.accepted_for_all(server.number, listener);
                dispatcher.place(arrival, server);
                Ok(())
            }
        }
    }
}
