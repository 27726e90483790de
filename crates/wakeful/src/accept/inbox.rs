//! The connections that other loops have handed to a loop.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use async_channel::Receiver;

use super::arrival::Arrival;
use super::connection::Connection;
use super::loop_server::LoopServer;
use super::routes::Routes;
use crate::task::consume_budget;

/// The connections that other loops have handed to a loop.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) arrivals: Receiver<Arrival>,
    pub(super) routes: Arc<Routes>,
}

impl Inbox {
    /// Serves the connections in the inbox until it is closed and empty.
    pub(super) async fn serve<H, F>(self: Rc<Self>, server: Rc<LoopServer<H>>)
    where
        H: Fn(Connection) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        while let Ok(arrival) = self.arrivals.recv().await {
            if let Err(refused) = server.serve(arrival) {
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
