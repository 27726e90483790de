//! What a run is to do.

use std::time::Duration;

use crate::protocol::{InvalidTemplate, Kind, Prepared, Protocol, Template};
use crate::schedule::Schedule;
use crate::target::Target;

/// What a run is to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The server.
    pub target: Target,
    /// What is spoken, and the request.
    pub request: Prepared,
    /// Which requests it was prepared with, if there are several: each is drawn by its weight, and
    /// reported by itself as well.
    pub kinds: Vec<Kind>,
    /// Keys are drawn below this, for requests that have a place for one.
    pub keys: u64,
    /// How many connections.
    pub connections: usize,
    /// How many requests may be in flight on one connection at a time.
    pub in_flight: usize,
    /// Whether connections are kept.
    pub use_of_connections: ConnectionUse,
    /// When requests are due.
    pub schedule: Schedule,
    /// What makes the schedule repeatable.
    pub seed: u64,
    /// How long the server is loaded before anything is measured; with a trace, how long nothing is
    /// sent.
    pub warm_up: Duration,
    /// How long is measured.
    pub duration: Duration,
    /// How long answers are waited for behind the measured time.
    pub patience: Duration,
}

/// Whether connections are kept from one request to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionUse {
    /// They are opened before the run and kept.
    Kept,
    /// Each request opens one and closes it behind the answer; the time counts from before the
    /// connect.
    PerRequest,
}

impl Plan {
    /// Requests of `template` to `target`, 1,000 a second for 10 seconds behind a second of
    /// warm-up, over 32 connections.
    ///
    /// # Errors
    /// The template is no request of this protocol.
    pub fn new(
        target: Target,
        protocol: Protocol,
        template: &Template,
    ) -> Result<Self, InvalidTemplate> {
        Ok(Self {
            target,
            request: protocol.prepare(template)?,
            kinds: Vec::new(),
            keys: 1,
            connections: 32,
            in_flight: default_in_flight(protocol),
            use_of_connections: ConnectionUse::Kept,
            schedule: Schedule::Poisson(1000.0),
            seed: 1,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(10),
            patience: Duration::from_secs(2),
        })
    }
}

/// As many requests as real clients of a protocol have in flight on one connection.
#[must_use]
pub fn default_in_flight(protocol: Protocol) -> usize {
    match protocol {
        // Few clients pipeline HTTP/1.1, and some servers cannot.
        Protocol::Http1 => 1,
        Protocol::Http2 => 100,
        Protocol::Frames | Protocol::Resp => 64,
    }
}
