//! How a server ends: the plan, and how those that have to know learn of it.
//!
//! [`DrainPlan`] says in which steps. [`Readiness`] is two signals, each given once and never taken
//! back: not ready, and draining. `server::running` gives them. [`drain_begins`] is for the
//! handlers of a loop, at no cost for those that do not ask.
//!
//! Connections do not ask here: the accept frame tells each one. What one does then is in
//! `http2::goaway`, in `http1`'s driver and `request::close_header`, and in
//! `connection::deadlines`, for how long it waits.

mod begins;
mod latch;
mod readiness;

use std::time::Duration;

pub(crate) use self::begins::enter;
pub use self::begins::{DrainBegins, drain_begins};
pub use self::readiness::Readiness;

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
/// | setting | default | range | what happens beyond it |
/// |---|---|---|---|
/// | [`pre_drain`](Self::pre_drain) | none | any | it drains |
/// | [`linger`](Self::linger) | 200 ms | any; a quarter of `grace` at most | the connection closes |
/// | [`grace`](Self::grace) | 10 s | any | what is left is aborted |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a setter returns the changed plan"]
pub struct DrainPlan {
    pub(crate) pre_drain: Duration,
    pub(crate) linger: Duration,
    pub(crate) grace: Duration,
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
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long the server goes on while it says that it is not ready: longer than health
    /// checks take to notice.
    pub fn pre_drain(mut self, time: Duration) -> Self {
        self.pre_drain = time;
        self
    }

    /// Sets how long a connection of HTTP/1.1 without a request is kept for one that may be on its
    /// way.
    pub fn linger(mut self, time: Duration) -> Self {
        self.linger = time;
        self
    }

    /// Sets how long all may take, after `pre_drain`. What is left then is aborted.
    pub fn grace(mut self, time: Duration) -> Self {
        self.grace = time;
        self
    }

    /// Who is idle is not to be aborted.
    pub(crate) fn linger_within_grace(&self) -> Duration {
        self.linger.min(self.grace / 4)
    }
}
