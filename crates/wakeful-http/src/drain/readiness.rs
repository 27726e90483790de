//! Whether a server is ready, and whether it drains, for any thread.

use std::future::Future;

use wakeful::process::ProcessMark;

#[cfg(doc)]
use super::DrainPlan;
use super::latch::Latch;

/// Shows whether a server is ready for requests, and when it begins to drain. Use it in health
/// checks, and on threads outside the server. [`Server::readiness`](crate::Server::readiness)
/// returns it.
///
/// A handler that must only end when the server drains can await
/// [`drain_begins`](crate::drain_begins) instead. That needs no extra argument and no lock.
///
/// A server that never runs, because its start fails or it is dropped before, is not ready and
/// drains, too. So nobody waits for ever.
///
/// ```
/// # use wakeful_http::Readiness;
/// async fn events(readiness: Readiness) {
///     // Select on this one, beside what the stream waits for, and end the stream with it.
///     readiness.until_draining().await;
/// }
/// ```
///
/// # Threads
/// `Send` and `Sync`.
#[derive(Debug, Clone)]
pub struct Readiness {
    ready: Latch,
    draining: Latch,
}

impl Readiness {
    pub(crate) fn new() -> Self {
        Self { ready: Latch::default(), draining: Latch::default() }
    }

    /// Returns whether clients should send more requests. It is `true` from the creation of the
    /// server until its shutdown begins.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.ready.is_given()
    }

    /// Waits until the server is no longer ready. Its shutdown has then begun, but it still serves
    /// for the time of [`DrainPlan::pre_drain`].
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub fn until_not_ready(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        self.ready.wait()
    }

    /// Returns whether the server has begun to drain.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.is_given()
    }

    /// Waits until the server begins to drain. A long-lived response (server-sent events, a gRPC
    /// stream, a WebSocket) should then end: after [`DrainPlan::grace`] it is aborted.
    ///
    /// # Cancel safety
    /// Cancel-safe.
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

/// Gives both signals when it is dropped: a server has it, and then the running server.
#[derive(Debug)]
pub(crate) struct Ending {
    readiness: Readiness,
    process: ProcessMark,
}

impl Ending {
    pub(crate) fn new() -> Self {
        Self { readiness: Readiness::new(), process: ProcessMark::new() }
    }

    /// The server runs in this process, which may be a fork of the one that made it.
    pub(crate) fn begins_here(&mut self) {
        self.process = ProcessMark::new();
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        &self.readiness
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // In a forked child nobody waits, and the lock may be locked for ever.
        if !self.process.is_forked() {
            self.readiness.drains();
        }
    }
}
