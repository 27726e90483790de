//! The counters of a proxy. Each loop counts for itself, and any thread can read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wakeful_http::client::ClientCounts;

/// The counters of a proxy, over all its loops.
///
/// The counts of a backend begin when the proxy starts. The counts of an address of a
/// [name](super::ProxyOptions::names) begin when a look-up first finds the address. If the name
/// loses the address, the counts are dropped when the last request there has ended. If the address
/// comes back later, its counts begin at 0 again.
///
/// # Threads
/// `Send` and `Sync`. Each number is exact, but two numbers are not read at the same instant.
#[derive(Debug, Default)]
pub struct Counts {
    backends: Mutex<Vec<Arc<BackendCounts>>>,
    names: Mutex<Vec<Arc<NameCounts>>>,
    loops: Mutex<Vec<Arc<LoopCounts>>>,
}

/// The counters of one backend, over all loops.
#[derive(Debug)]
pub struct BackendCounts {
    name: String,
    /// How many entries of the proxy's list refer to this backend.
    listed: AtomicUsize,
    loops: Mutex<BTreeMap<usize, Arc<OnLoop>>>,
}

/// The counters of a name whose addresses are backends.
#[derive(Debug)]
pub struct NameCounts {
    name: String,
    pub(super) addresses: Count,
    pub(super) running: Count,
    pub(super) lookups: Count,
    pub(super) failures: Count,
}

/// The counters of one loop, which alone writes them.
#[derive(Debug)]
pub(super) struct LoopCounts {
    number: usize,
    pub(super) retried: Count,
    pub(super) refused: Count,
    pub(super) overloads: Count,
    pub(super) tunnels: Count,
    pub(super) buffered: Count,
    client: Arc<ClientCounts>,
}

/// One loop's counters of one backend.
#[derive(Debug, Default)]
pub(super) struct OnLoop {
    pub(super) requests: Count,
    pub(super) in_flight: Count,
    pub(super) failures: Count,
    pub(super) ejections: Count,
}

/// A number with one writer. It may also decrease.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicI64);

impl Count {
    pub(super) fn add(&self, amount: i64) {
        self.0.store(self.0.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }

    pub(super) fn set(&self, number: usize) {
        self.0.store(i64::try_from(number).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        u64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BackendCounts {
    /// Returns the address of the backend.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many requests the proxy gave to the backend.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.sum(|counts| &counts.requests)
    }

    /// Returns how many requests are in flight at the backend. A request is in flight until its
    /// response has been read.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.sum(|counts| &counts.in_flight)
    }

    /// Returns how many requests failed because of the backend: there was no connection or no
    /// response in time, or the response broke off or was not HTTP.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.sum(|counts| &counts.failures)
    }

    /// Returns how often the backend was excluded ([`Ejection`](super::Ejection)).
    #[must_use]
    pub fn ejections(&self) -> u64 {
        self.sum(|counts| &counts.ejections)
    }

    fn sum(&self, of: impl Fn(&OnLoop) -> &Count) -> u64 {
        locked(&self.loops).values().map(|counts| of(counts).get()).sum()
    }

    pub(super) fn on_loop(&self, counts: &LoopCounts) -> Arc<OnLoop> {
        locked(&self.loops).entry(counts.number).or_default().clone()
    }

    /// Removes one entry of the list.
    pub(super) fn unlist(&self) {
        self.listed.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_of_use(&self) -> bool {
        self.listed.load(Ordering::Relaxed) > 0 || self.in_flight() > 0
    }
}

impl NameCounts {
    /// Returns the name with its port.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many addresses the name had at its last look-up that succeeded, or 0 if three
    /// look-ups in a row have found none.
    #[must_use]
    pub fn addresses(&self) -> u64 {
        self.addresses.get()
    }

    /// Returns 1 while a look-up of the name runs, and 0 otherwise.
    #[must_use]
    pub fn running(&self) -> u64 {
        self.running.get()
    }

    /// Returns how often the name was looked up.
    #[must_use]
    pub fn lookups(&self) -> u64 {
        self.lookups.get()
    }

    /// Returns how many look-ups failed, or found no address.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.get()
    }
}

impl Counts {
    /// Adds a loop, with its client.
    pub(super) fn of_a_loop(&self, client: Arc<ClientCounts>) -> Arc<LoopCounts> {
        let (retried, refused, overloads, tunnels, buffered) = Default::default();
        let mut loops = locked(&self.loops);
        let number = loops.len();
        let counts =
            Arc::new(LoopCounts { number, retried, refused, overloads, tunnels, buffered, client });
        loops.push(counts.clone());
        counts
    }

    /// Adds a backend. If one with this name exists already, or still has requests, its counters
    /// continue.
    pub(super) fn list(&self, name: String) -> Arc<BackendCounts> {
        let mut backends = locked(&self.backends);
        backends.retain(|one| one.is_of_use());
        let known = backends.iter().find(|one| one.name == name).cloned();
        let counts = known.unwrap_or_else(|| {
            let (listed, loops) = Default::default();
            let counts = Arc::new(BackendCounts { name, listed, loops });
            backends.push(counts.clone());
            counts
        });
        counts.listed.fetch_add(1, Ordering::Relaxed);
        counts
    }

    pub(super) fn of_name(&self, name: String) -> Arc<NameCounts> {
        let (addresses, running, lookups, failures) = Default::default();
        let counts = Arc::new(NameCounts { name, addresses, running, lookups, failures });
        locked(&self.names).push(counts.clone());
        counts
    }

    fn sum(&self, of: impl Fn(&LoopCounts) -> u64) -> u64 {
        locked(&self.loops).iter().map(|counts| of(counts)).sum()
    }

    /// Returns the counters of the backends, each address once. The first ones are the backends
    /// that were given by address. The addresses of names follow, including former ones that still
    /// have requests.
    #[must_use]
    pub fn backends(&self) -> Vec<Arc<BackendCounts>> {
        let mut backends = locked(&self.backends);
        backends.retain(|one| one.is_of_use());
        backends.clone()
    }

    /// Returns the counters of the names whose addresses are backends.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<NameCounts>> {
        locked(&self.names).clone()
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

    /// Returns how often a request got no connection because all connections to a backend were in
    /// use: the queue was full, or the wait took too long.
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
