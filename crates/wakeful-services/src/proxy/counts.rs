//! What a proxy counts: each loop by itself, read from any thread.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use wakeful_http::client::ClientCounts;

/// What a proxy counts, of all its loops.
///
/// # Threads
/// `Send` and `Sync`. Each number is exact; two are not read at the same instant.
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

    /// The backends, as they were given.
    pub fn backends(&self) -> impl ExactSizeIterator<Item = &str> {
        self.backends.iter().map(String::as_str)
    }

    /// Requests that a backend was given.
    #[must_use]
    pub fn requests(&self, backend: usize) -> u64 {
        self.sum(|counts| counts.backend(backend).requests.get())
    }

    /// Requests in flight at a backend, until its response has been read.
    #[must_use]
    pub fn in_flight(&self, backend: usize) -> u64 {
        self.sum(|counts| counts.backend(backend).in_flight.get())
    }

    /// Requests that a backend failed: no connection, no response in time, a response that broke
    /// off or is not HTTP.
    #[must_use]
    pub fn failures(&self, backend: usize) -> u64 {
        self.sum(|counts| counts.backend(backend).failures.get())
    }

    /// How often a backend was left out.
    #[must_use]
    pub fn ejections(&self, backend: usize) -> u64 {
        self.sum(|counts| counts.backend(backend).ejections.get())
    }

    /// Requests that were retried, at the same backend or another one.
    #[must_use]
    pub fn retried(&self) -> u64 {
        self.sum(|counts| counts.retried.get() + counts.client.retried())
    }

    /// Requests that the proxy answered itself, because they were not valid.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.sum(|counts| counts.refused.get())
    }

    /// How often a request found all connections to a backend in use, and could not wait for one:
    /// the queue was full, or the wait took too long.
    #[must_use]
    pub fn overloads(&self) -> u64 {
        self.sum(|counts| counts.overloads.get())
    }

    /// Upgraded connections that are open. Each counts as in flight at its backend, too.
    #[must_use]
    pub fn tunnels(&self) -> u64 {
        self.sum(|counts| counts.tunnels.get())
    }

    /// Bytes of bodies that wait in the proxy.
    #[must_use]
    pub fn buffered(&self) -> u64 {
        self.sum(|counts| counts.buffered.get())
    }

    /// Connections made to backends.
    #[must_use]
    pub fn connections_opened(&self) -> u64 {
        self.sum(|counts| counts.client.opened())
    }

    /// Requests that got a connection to a backend that had been used before.
    #[must_use]
    pub fn connections_reused(&self) -> u64 {
        self.sum(|counts| counts.client.reused())
    }
}
