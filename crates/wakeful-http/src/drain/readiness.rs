//! Whether a server is ready, and whether it drains, for any thread.

use std::future::Future;

#[cfg(doc)]
use super::DrainPlan;
use super::latch::Latch;

/// Whether a server is ready for requests, and when it begins to drain: for health checks, and for
/// threads that are not the server's. It is the service's by
/// [`Server::readiness`](crate::Server::readiness).
///
/// A handler on a loop of the server that only has to come to its end awaits
/// [`drain_begins`](crate::drain_begins): nobody has to pass it on, and it costs no lock.
///
/// ```
/// # use wakeful_http::Readiness;
/// async fn events(readiness: Readiness) {
///     // Select on this one, beside what the stream waits for, and end the stream with it.
///     readiness.until_draining().await;
/// }
/// ```
///
/// *Threads*: `Send` and `Sync`.
#[derive(Debug, Clone)]
pub struct Readiness {
    ready: Latch,
    draining: Latch,
}

impl Readiness {
    pub(crate) fn new() -> Self {
        Self { ready: Latch::default(), draining: Latch::default() }
    }

    /// Should more requests be sent here? From the server's making on, until it is told to end.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.ready.is_given()
    }

    /// Waits until it is not ready any more: it is told to end, and goes on for
    /// [`DrainPlan::pre_drain`].
    ///
    /// *Cancel-safe*.
    pub fn until_not_ready(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        self.ready.wait()
    }

    /// Has it begun to drain?
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.is_given()
    }

    /// Waits until it begins to drain. A response that would go on (server-sent events, a stream of
    /// gRPC, a WebSocket) should come to its end then: after [`DrainPlan::grace`] it is aborted.
    ///
    /// *Cancel-safe*.
    pub fn until_draining(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        self.draining.wait()
    }

    pub(crate) fn ends_soon(&self) {
        self.ready.give();
    }

    pub(crate) fn drains(&self) {
        self.ready.give();
        self.draining.give();
    }
}
