//! How a server ends: the plan, and who is told.
//!
//! [`DrainPlan`] says in which steps. [`Readiness`] is two signals, each given once and never taken
//! back: not ready, and draining. `server` gives them; `begins` tells the handlers of a loop.

mod begins;
mod signal;

use std::future::Future;
use std::time::Duration;

pub(crate) use self::begins::enter;
pub use self::begins::{DrainBegins, drain_begins};
use self::signal::Signal;

/// How a server ends, by [`Server::serve`](crate::Server::serve) or
/// [`Running::drain`](crate::Running::drain):
///
/// 1. *Not ready*, for `pre_drain`. [`Readiness::is_ready`] turns false, and what probes the server
///    (`/readyz`, gRPC's health) says so. It goes on as before, so that whoever sends traffic here
///    learns of it.
/// 2. *Draining.* Streams are told ([`drain_begins`](crate::drain_begins),
///    [`Readiness::until_draining`]). What waits in the listeners' backlogs is accepted, and the
///    listeners close. Connections of HTTP/2 say GOAWAY; those of HTTP/1.1 say `connection: close`
///    with their next response.
/// 3. *The end.* A connection without a request closes when none came for `linger` (HTTP/2: when
///    its client leaves, or has said nothing for 5 s or half of `grace`), any other one when it has
///    answered (HTTP/2: likewise). What is left after `grace` is aborted, and counted.
///
/// A request that is on its way when the second step begins is answered: on an open connection it
/// comes within `linger`, and then its response is the last one. To close an idle connection at
/// once would cross such a request on the way, and its client could not know whether it was served.
///
/// | field | default | range | what happens beyond it |
/// |---|---|---|---|
/// | `pre_drain` | none | any | it drains |
/// | `linger` | 200 ms | any; a quarter of `grace` at most | the connection closes |
/// | `grace` | 10 s | any | what is left is aborted |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainPlan {
    /// How long it goes on while it says that it is not ready: longer than whoever asks takes to
    /// notice.
    pub pre_drain: Duration,
    /// How long a connection of HTTP/1.1 without a request is kept for one that may be on its way.
    pub linger: Duration,
    /// How long all may take, after `pre_drain`. What is left then is aborted.
    pub grace: Duration,
}

impl Default for DrainPlan {
    fn default() -> Self {
        Self {
            pre_drain: Duration::ZERO,
            linger: Duration::from_millis(200),
            grace: Duration::from_secs(10),
        }
    }
}

impl DrainPlan {
    /// Who is idle is not to be aborted.
    pub(crate) fn linger_within_grace(&self) -> Duration {
        self.linger.min(self.grace / 4)
    }
}

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
    ready: Signal,
    draining: Signal,
}

impl Readiness {
    pub(crate) fn new() -> Self {
        Self { ready: Signal::default(), draining: Signal::default() }
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

    pub(crate) fn is_told_to_end(&self) {
        self.ready.give();
    }

    pub(crate) fn drains(&self) {
        self.ready.give();
        self.draining.give();
    }
}
