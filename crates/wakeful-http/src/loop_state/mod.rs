//! What the connections of one loop share: the server's limits, this loop's counts, and what all
//! loops count together.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::counts::Refusal;
use crate::counts::{HttpCounts, LoopHttpCounts};
use crate::drain::Readiness;
use crate::limits::Limits;
use crate::limits::peers::Peers;
use crate::observe::{Observe, Observer};

/// As much as hyper reads at a time, by default; h2 reads a quarter.
const SCRATCH: usize = 64 * 1024;

/// A fifth of a second.
const LINGER: u64 = 200_000_000;
/// Five seconds.
const GOING_AWAY: u64 = 5_000_000_000;

/// What all loops of a server share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) limits: Arc<Limits>,
    pub(crate) counts: Arc<HttpCounts>,
    pub(crate) readiness: Readiness,
    peers: Option<Arc<Peers>>,
    /// Requests in flight, if they are limited.
    in_flight: Arc<AtomicUsize>,
    /// How long a connection that closes waits for a request on its way, in nanoseconds.
    pub(crate) linger: Arc<AtomicU64>,
    /// How long an HTTP/2 client may take to leave once it was told to, in nanoseconds.
    pub(crate) going_away: Arc<AtomicU64>,
    /// How many loops have asked for their number.
    loops: Arc<AtomicUsize>,
}

impl Shared {
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

    /// The part of the next loop, which is this thread's.
    pub(crate) fn of_next_loop(&self, observe: &Observe) -> Rc<Local> {
        let number = self.loops.fetch_add(1, Ordering::Relaxed);
        HERE.set(Some((self.clone(), number)));
        let observer = observe.on_this_loop();
        Rc::new(Local { number, shared: self.clone(), scratch: RefCell::default(), observer })
    }
}

thread_local! {
    /// A loop of a server's group is that server's alone.
    static HERE: RefCell<Option<(Shared, usize)>> = const { RefCell::new(None) };
}

/// That of the server whose loop this thread runs; `None` on any other thread.
#[cfg(feature = "grpc")]
pub(crate) fn readiness() -> Option<Readiness> {
    HERE.with_borrow(|here| here.as_ref().map(|(shared, _)| shared.readiness.clone()))
}

/// Counts a refusal for the loop that this thread runs, if it is a server's. For services that do
/// not see their connection.
#[cfg(feature = "files")]
pub(crate) fn refuse_here(refusal: Refusal) {
    HERE.with_borrow(|here| {
        if let Some((shared, number)) = here {
            shared.counts.of(*number).refuse(refusal);
        }
    });
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Local {
    number: usize,
    shared: Shared,
    /// For bytes that are looked at on their way to hyper: made when the first are.
    scratch: RefCell<Vec<u8>>,
    observer: Rc<Observer>,
}

impl Local {
    /// Who tells of its requests.
    pub(crate) fn observer(&self) -> &Rc<Observer> {
        &self.observer
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    pub(crate) fn counts(&self) -> &LoopHttpCounts {
        self.shared.counts.of(self.number)
    }

    /// How long a connection that closes waits for a request that may be on its way.
    pub(crate) fn linger(&self) -> Duration {
        Duration::from_nanos(self.shared.linger.load(Ordering::Relaxed))
    }

    /// How long an HTTP/2 client may take to leave once it was told to.
    pub(crate) fn going_away(&self) -> Duration {
        Duration::from_nanos(self.shared.going_away.load(Ordering::Relaxed))
    }

    pub(crate) fn peers(&self) -> Option<&Arc<Peers>> {
        self.shared.peers.as_ref()
    }

    pub(crate) fn refuse(&self, refusal: Refusal) {
        self.counts().refuse(refusal);
    }

    /// One more request, if it may be.
    pub(crate) fn begin_request(&self) -> bool {
        let most = self.limits().max_requests;
        if most > 0 && self.shared.in_flight.fetch_add(1, Ordering::Relaxed) >= most {
            self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// One that [`begin_request`](Self::begin_request) has let begin is over.
    pub(crate) fn end_request(&self) {
        if self.limits().max_requests > 0 {
            self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Room for bytes on their way.
    pub(crate) fn with_scratch<R>(&self, use_it: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut scratch = self.scratch.borrow_mut();
        if scratch.is_empty() {
            scratch.resize(SCRATCH, 0);
        }
        use_it(&mut scratch)
    }
}
