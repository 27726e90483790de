//! What all loops of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::counts::HttpCounts;
use crate::drain::{DrainPlan, Readiness};
use crate::limits::Limits;
use crate::limits::peers::Peers;

/// A fifth of a second.
const LINGER: u64 = 200_000_000;
/// Five seconds.
const GOING_AWAY: u64 = 5_000_000_000;

/// What all loops of a server share.
#[derive(Debug, Clone)]
pub(crate) struct ServerState {
    pub(super) limits: Arc<Limits>,
    pub(super) counts: Arc<HttpCounts>,
    #[cfg_attr(not(feature = "grpc"), expect(dead_code, reason = "gRPC's health service asks"))]
    pub(super) readiness: Readiness,
    pub(super) peers: Option<Arc<Peers>>,
    /// Requests in flight, if they are limited.
    pub(super) in_flight: Arc<AtomicUsize>,
    /// How long a connection that closes waits for a request on its way, in nanoseconds.
    linger: Arc<AtomicU64>,
    /// How long an HTTP/2 client may take to leave once it was told to, in nanoseconds.
    going_away: Arc<AtomicU64>,
    /// How many loops have asked for their number.
    loops: Arc<AtomicUsize>,
}

impl ServerState {
    pub(crate) fn new(limits: Limits, loops: usize, readiness: Readiness) -> Self {
        let limits = limits.clamped();
        Self {
            peers: Peers::new(limits.max_connections_per_peer, limits.peer_rate),
            limits: Arc::new(limits),
            readiness,
            counts: Arc::new(HttpCounts::new(loops)),
            in_flight: Arc::default(),
            linger: Arc::new(AtomicU64::new(LINGER)),
            going_away: Arc::new(AtomicU64::new(GOING_AWAY)),
            loops: Arc::default(),
        }
    }
    /// The counts of all loops.
    pub(crate) fn counts(&self) -> Arc<HttpCounts> {
        self.counts.clone()
    }

    /// Returns the number of the next loop that asks.
    pub(super) fn next_loop(&self) -> usize {
        self.loops.fetch_add(1, Ordering::Relaxed)
    }

    /// Sets how long closing connections wait for their clients, according to the plan of the
    /// drain.
    pub(crate) fn drain_by(&self, plan: &DrainPlan) {
        let linger = u64::try_from(plan.linger_within_grace().as_nanos()).unwrap_or(u64::MAX);
        self.linger.store(linger, Ordering::Relaxed);
        // A client that is idle and does not leave must not be aborted, so it gets less than the
        // grace period.
        let half = u64::try_from((plan.grace / 2).as_nanos()).unwrap_or(u64::MAX);
        self.going_away.fetch_min(half, Ordering::Relaxed);
    }

    /// How long a connection that closes waits for a request that may be on its way.
    pub(super) fn linger(&self) -> Duration {
        Duration::from_nanos(self.linger.load(Ordering::Relaxed))
    }

    /// How long an HTTP/2 client may take to leave once it was told to.
    pub(super) fn going_away(&self) -> Duration {
        Duration::from_nanos(self.going_away.load(Ordering::Relaxed))
    }
}
