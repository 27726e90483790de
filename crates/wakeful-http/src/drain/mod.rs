//! How a server ends: the plan, and how other code learns of the drain.
//!
//! [`DrainPlan`] has the steps. [`Readiness`] consists of two signals, each given once and never
//! taken back: not ready, and draining. `server::running` gives them. [`drain_begins`] is for the
//! handlers of a loop, and costs nothing for those that do not ask.
//!
//! Connections do not use these signals, because the accept frame tells each connection. What a
//! connection then does is in `http2::goaway`, in `http1`'s driver and in `request::close_header`;
//! how long it waits is in `connection::deadlines`.

mod begins;
mod latch;
mod put_off;
mod readiness;

use std::time::Duration;

pub(crate) use self::begins::enter;
pub use self::begins::{DrainBegins, drain_begins};
pub(crate) use self::readiness::Ending;
pub use self::readiness::Readiness;

/// How a server ends, in [`Server::serve`](crate::Server::serve) or
/// [`Running::drain`](crate::Running::drain). It ends in three steps:
///
/// 1. *Not ready*, for `pre_drain`. [`Readiness::is_ready`] becomes false, and health checks
///    (`/readyz`, gRPC's health) report this. The server still serves as before, so that load
///    balancers have time to notice.
/// 2. *Draining.* Long-lived responses are notified ([`drain_begins`](crate::drain_begins),
///    [`Readiness::until_draining`]). The server accepts the connections that wait in the
///    listeners' backlogs, and closes the listeners. HTTP/2 connections send GOAWAY; HTTP/1.1
///    connections send `connection: close` with their next response.
/// 3. *The end.* An HTTP/1.1 connection without a request closes if no request arrives within
///    `linger`. Any other HTTP/1.1 connection closes when it has answered. An HTTP/2 connection
///    closes when its client leaves, or when nothing is in flight and the client has been silent
///    for 5 s (or for half of `grace`, if that is shorter). Connections that remain after `grace`
///    are aborted. [`Running::drain`](crate::Running::drain) returns their number.
///
/// A client may send a request just before it learns of the drain. Such a request is answered if it
/// arrives within `linger`, and its response is the last one of its connection. If the server
/// closed idle connections at once, the request could arrive after the close, and the client could
/// not know whether it was served.
///
/// | setting | default | range | what happens beyond it |
/// |---|---|---|---|
/// | [`pre_drain`](Self::pre_drain) | none | any | the drain begins |
/// | [`linger`](Self::linger) | 200 ms | any; at most a quarter of `grace` | the connection closes |
/// | [`grace`](Self::grace) | 10 s | any | remaining connections are aborted |
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
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long the server keeps serving while it reports that it is not ready. Choose a
    /// longer time than health checks need to notice.
    pub fn pre_drain(mut self, time: Duration) -> Self {
        self.pre_drain = time;
        self
    }

    /// Sets how long an HTTP/1.1 connection without a request stays open, because its client may
    /// already have sent a request that has not arrived yet.
    pub fn linger(mut self, time: Duration) -> Self {
        self.linger = time;
        self
    }

    /// Sets how long the drain may take in total, not counting `pre_drain`. Connections that remain
    /// after that are aborted.
    pub fn grace(mut self, time: Duration) -> Self {
        self.grace = time;
        self
    }

    /// Idle connections must not be aborted, so the linger time is well within the grace period.
    pub(crate) fn linger_within_grace(&self) -> Duration {
        self.linger.min(self.grace / 4)
    }
}
