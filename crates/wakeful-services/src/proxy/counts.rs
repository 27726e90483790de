//! What a proxy counts: each loop by itself, read from any thread.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use wakeful_http::client::ClientCounts;

/// The counters of a proxy, over all its loops.
///
/// # Threads
/// `Send` and `Sync`. Each number is exact, but two numbers are not read at the same instant.
#[derive(Debug)]
pub struct Counts {
    backends: Box<[String]>,
    loops: Mutex<Vec<Arc<LoopCounts>>>,
}

/// What one loop counts: it alone writes.
#[derive(Debug)]
pub(super) struct LoopCounts {
    backends: Box<[BackendCounts]>,
    pub(super) retried: Count,
    pub(super) refused: Count,
    pub(super) overloads: Count,
    pub(super) tunnels: Count,
    pub(super) buffered: Count,
    client: Arc<ClientCounts>,
}

#[derive(Debug, Default)]
pub(super) struct BackendCounts {
    pub(super) requests: Count,
    pub(super) in_flight: Count,
    pub(super) failures: Count,
    pub(super) ejections: Count,
}

/// A number with one writer, which may go down again.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicI64);

impl Count {
    pub(super) fn add(&self, amount: i64) {
        self.0.store(self.0.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        u64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

impl LoopCounts {
    pub(super) fn backend(&self, backend: usize) -> &BackendCounts {
        &self.backends[backend]
    }
}

impl Counts {
    pub(super) fn new(backends: Box<[String]>) -> Self {
        Self { backends, loops: Mutex::default() }
    }

    /// One more loop, with its client.
    pub(super) fn of_a_loop(&self, client: Arc<ClientCounts>) -> Arc<LoopCounts> {
        let backends = self.backends.iter().map(|_| BackendCounts::default()).collect();
        let (retried, refused, overloads, tunnels, buffered) = Default::default();
        let counts =
            LoopCounts { backends, retried, refused, overloads, tunnels, buffered, client };
        let counts = Arc::new(counts);
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).push(counts.clone());
        counts
    }

    fn sum(&self, of: impl Fn(&LoopCounts) -> u64) -> u64 {
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        loops.iter().map(|counts| of(counts)).sum()
    }

    /// Returns the backends, in the order in which they were given.
    pub fn backends(&self) -> impl ExactSizeIterator<Item = &str> {
        self.backends.iter().map(String::as_str)
    }

    /// Returns how many requests were given to this backend.
    #[must_use]
    pub fn requests(&self, backend: usize) -> u64 {
        self.sum(|counts| counts.backend(backend).requests.get())
    }

    /// Returns how many requests are in flight at this backend. A request is in flight until its
    /// response has been read.
    #[must_use]
    pub fn in_flight(&self, backend: usize) -> u64 {
        self.sum(|counts| counts.backend(backend).in_flight.get())
    }

    /// Returns how many requests this backend failed: no connection, no response in time, a
    /// response that broke off or is not HTTP.
    #[must_use]
    pub fn failures(&self, backend: usize) -> u64 {
        self.sum(|counts| counts.backend(backend).failures.get())
    }

    /// Returns how often this backend was excluded.
    #[must_use]
    pub fn ejections(&self, backend: usize) -> u64 {
        self.sum(|counts| counts.backend(backend).ejections.get())
    }

    /// Returns how many requests were retried, at the same backend or another one.
    #[must_use]
    pub fn retried(&self) -> u64 {
        self.sum(|counts| counts.retried.get() + counts.client.retried())
    }

    /// Returns how many requests the proxy refused because they were not valid.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.sum(|counts| counts.refused.get())
    }

    /// Returns how often a request found all connections to this backend in use, and got none: the
    /// queue was full, or the wait took too long.
    #[must_use]
    pub fn overloads(&self) -> u64 {
        self.sum(|counts| counts.overloads.get())
    }

    /// Returns how many upgraded connections are open. Each also counts as in flight at its
    /// backend.
    #[must_use]
    pub fn tunnels(&self) -> u64 {
        self.sum(|counts| counts.tunnels.get())
    }

    /// Returns how many bytes of bodies wait in the proxy.
    #[must_use]
    pub fn buffered(&self) -> u64 {
        self.sum(|counts| counts.buffered.get())
    }

    /// Returns how many connections were made to backends.
    #[must_use]
    pub fn connections_opened(&self) -> u64 {
        self.sum(|counts| counts.client.opened())
    }

    /// Returns how many requests reused a connection to a backend.
    #[must_use]
    pub fn connections_reused(&self) -> u64 {
        self.sum(|counts| counts.client.reused())
    }
}
