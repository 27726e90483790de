//! The settings of a run.

use std::time::Duration;

use crate::protocol::{Protocol, Requests, Template};
use crate::schedule::Schedule;
use crate::target::Target;

/// The plan of a run: the server, the requests, when they are due, and over how many connections
/// they are sent.
///
/// # Settings
///
/// | setting | default | range |
/// |---|---|---|
/// | [`requests`](Self::requests) | `GET /` over HTTP/1.1 | what [`Requests`] accepts |
/// | [`rate`](Self::rate), [`schedule`](Self::schedule) | 1,000 a second, Poisson | above 0 |
/// | [`duration`](Self::duration) | 10 s | any |
/// | [`warm_up`](Self::warm_up) | 1 s | any |
/// | [`patience`](Self::patience) | 2 s | any |
/// | [`connections`](Self::connections) | 32 | at least 1 |
/// | [`in_flight`](Self::in_flight) | by protocol: 1, 64 or 100 | at least 1 |
/// | [`use_of_connections`](Self::use_of_connections) | [`ConnectionUse::Kept`] | |
/// | [`keys`](Self::keys) | 1 | any |
/// | [`seed`](Self::seed) | 1 | any |
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use wakeful_load::Plan;
///
/// let measurement = Plan::new("127.0.0.1:8080".parse()?)
///     .rate(5_000.0)
///     .connections(16)
///     .duration(Duration::from_secs(5))
///     .run()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) target: Target,
    pub(crate) requests: Requests,
    /// Keys are drawn below this, for requests that have a place for one.
    pub(crate) keys: u64,
    pub(crate) connections: usize,
    /// `None` means as many as is usual in the protocol.
    pub(super) in_flight: Option<usize>,
    pub(crate) use_of_connections: ConnectionUse,
    pub(crate) schedule: Schedule,
    pub(crate) seed: u64,
    pub(crate) warm_up: Duration,
    pub(crate) duration: Duration,
    pub(crate) patience: Duration,
}

/// Whether connections are kept from one request to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionUse {
    /// Connections are opened before the run and kept.
    Kept,
    /// Each request opens a connection, and closes it after the answer. The response time includes
    /// the time to connect.
    PerRequest,
}

impl Plan {
    /// Plans `GET /` over HTTP/1.1 to `target`, 1,000 times a second for 10 seconds after a second
    /// of warm-up, over 32 connections.
    #[must_use]
    pub fn new(target: Target) -> Self {
        let template = Template::http("GET", &target.authority(), "/");
        let requests = Requests::new(Protocol::Http1, &template)
            .expect("an address is an authority, and the rest is constant");
        Self {
            target,
            requests,
            keys: 1,
            connections: 32,
            in_flight: None,
            use_of_connections: ConnectionUse::Kept,
            schedule: Schedule::Poisson(1000.0),
            seed: 1,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(10),
            patience: Duration::from_secs(2),
        }
    }

    /// Sets the server.
    #[must_use]
    pub fn target(self, target: Target) -> Self {
        Self { target, ..self }
    }

    /// Sets the requests, and their protocol.
    #[must_use]
    pub fn requests(self, requests: Requests) -> Self {
        Self { requests, ..self }
    }

    /// Sets the number of keys for `{key}` in a RESP command: each request draws a key below
    /// `keys`, all with the same probability. With 0 or 1, every key is 0.
    #[must_use]
    pub fn keys(self, keys: u64) -> Self {
        Self { keys, ..self }
    }

    /// Sets the mean number of requests per second. They arrive like those of independent clients
    /// ([`Schedule::Poisson`]). This replaces any other schedule.
    ///
    /// # Panics
    ///
    /// If `a_second` is not a finite number above 0.
    #[must_use]
    pub fn rate(self, a_second: f64) -> Self {
        assert!(a_second.is_finite() && a_second > 0.0, "{a_second} is not a rate of requests");
        self.schedule(Schedule::Poisson(a_second))
    }

    /// Sets when requests are due.
    #[must_use]
    pub fn schedule(self, schedule: Schedule) -> Self {
        Self { schedule, ..self }
    }

    /// Sets the seed of the schedule and of the drawn requests and keys. The same seed gives the
    /// same requests at the same times.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the number of connections. If none is free, a request waits, and the wait counts in its
    /// response time.
    ///
    /// # Panics
    ///
    /// If it is 0.
    #[must_use]
    pub fn connections(self, connections: usize) -> Self {
        assert!(connections > 0, "a run needs at least one connection");
        Self { connections, ..self }
    }

    /// Sets how many requests one connection may have in flight. With `None` it depends on the
    /// protocol: 1 for HTTP/1.1 (more is pipelining), 100 for HTTP/2, 64 for frames and RESP. A
    /// connection with more than 1 MiB still to send takes no further request.
    ///
    /// # Panics
    ///
    /// If it is 0.
    #[must_use]
    pub fn in_flight(self, limit: impl Into<Option<usize>>) -> Self {
        let in_flight = limit.into();
        assert!(in_flight != Some(0), "a connection has to have a request in flight");
        Self { in_flight, ..self }
    }

    /// Sets whether connections are kept between requests.
    #[must_use]
    pub fn use_of_connections(self, use_of_connections: ConnectionUse) -> Self {
        Self { use_of_connections, ..self }
    }

    /// Sets how long the server is loaded before the measurement begins. With [`Schedule::Trace`]
    /// nothing is sent in this time, because a trace begins after it.
    #[must_use]
    pub fn warm_up(self, warm_up: Duration) -> Self {
        Self { warm_up, ..self }
    }

    /// Sets the measured time. It begins after the warm-up.
    #[must_use]
    pub fn duration(self, duration: Duration) -> Self {
        Self { duration, ..self }
    }

    /// Sets how long the run waits for the last answers. Requests that are unanswered after that
    /// count as failed. If the generator's thread stands still during the wait, the server may
    /// stand still with it. So the wait is extended by the time for which the thread stood still,
    /// up to twice its length in total.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Returns the server.
    #[must_use]
    pub fn get_target(&self) -> &Target {
        &self.target
    }

    /// Returns the schedule.
    #[must_use]
    pub fn get_schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns the seed.
    #[must_use]
    pub fn get_seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn get_connections(&self) -> usize {
        self.connections
    }

    /// Returns the measured time, without the warm-up.
    #[must_use]
    pub fn get_duration(&self) -> Duration {
        self.duration
    }

    /// How many requests one connection may have in flight.
    pub(crate) fn limit_in_flight(&self) -> usize {
        self.in_flight.unwrap_or_else(|| self.requests.in_flight())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_an_authority() {
        for text in ["127.0.0.1:80", "[::1]:8080", "[fe80::1%2]:80", "unix:/run/x.sock", "unix:@x"]
        {
            drop(Plan::new(text.parse().unwrap()));
        }
    }

    #[test]
    fn the_limit_in_flight_is_the_protocols_unless_given() {
        let plan = Plan::new("127.0.0.1:80".parse().unwrap());
        assert_eq!(plan.limit_in_flight(), 1);
        let frames = Requests::new(Protocol::Frames, &Template::of_size(1)).unwrap();
        let plan = plan.requests(frames);
        assert_eq!(plan.limit_in_flight(), 64);
        let plan = plan.in_flight(3);
        assert_eq!(plan.limit_in_flight(), 3);
        assert_eq!(plan.in_flight(None).limit_in_flight(), 64);
    }
}
