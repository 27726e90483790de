//! What each loop did: counters that its thread alone writes and any thread reads.
//!
//! A count costs the loop a load and a store, no read-modify-write, and a reader never slows it.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now.wrapping_add(more), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one loop, on cache lines of their own.
#[derive(Debug, Default)]
pub(crate) struct Counters(CachePadded<Fields>);

#[derive(Debug, Default)]
pub(crate) struct Fields {
    pub(crate) turns: Counter,
    pub(crate) waits: Counter,
    pub(crate) parks: Counter,
    pub(crate) spin_hits: Counter,
    pub(crate) spin_misses: Counter,
    pub(crate) gave_way: Counter,
    pub(crate) events: Counter,
    pub(crate) polls: Counter,
    pub(crate) remote: Counter,
    pub(crate) timers: Counter,
    pub(crate) callbacks: Counter,
    pub(crate) panics: Counter,
}

impl std::ops::Deref for Counters {
    type Target = Fields;

    fn deref(&self) -> &Fields {
        &self.0
    }
}

/// What a loop has done since it was built. Read it from any thread with
/// [`LoopHandle::metrics`](crate::LoopHandle::metrics); the fields are read one after the other while the
/// loop goes on, so they may be a few events apart. All wrap at 2^64.
///
/// *Threads*: A copy: `Send` and `Sync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LoopMetrics {
    /// Turns taken.
    pub turns: u64,
    /// Times that the kernel was asked for events: one system call each.
    pub waits: u64,
    /// Those of [`waits`](Self::waits) that were allowed to sleep. Under load most of them return at
    /// once, because events are already there: this is the number of times that nothing was runnable,
    /// not of context switches.
    pub parks: u64,
    /// Spins of [`IdlePolicy::Adaptive`](crate::IdlePolicy::Adaptive) that met an event: each would have been a sleep and a wake.
    pub spin_hits: u64,
    /// Spins that nothing ended within their window; a sleep follows. Many beside few hits: the window costs CPU for nothing.
    pub spin_misses: u64,
    /// Spins that ended because the loop had lost its CPU to somebody else meanwhile; it sleeps at once for some time then. More than a few a second: the loop has no
    /// CPU of its own, and its latency is the neighbour's to decide.
    pub gave_way: u64,
    /// Events that the kernel reported for registered descriptors.
    pub events: u64,
    /// Polls of tasks, and runs of closures that handles sent.
    pub polls: u64,
    /// Nodes taken from the ready queue: wakes and closures from other threads.
    pub remote: u64,
    /// Timers that expired.
    pub timers: u64,
    /// Callbacks run, of all four kinds.
    pub callbacks: u64,
    /// Panics that were contained in closures and callbacks. A task's panic goes to its
    /// [`JoinHandle`](crate::JoinHandle) and is not counted here.
    pub panics: u64,
}

impl Counters {
    pub(crate) fn read(&self) -> LoopMetrics {
        LoopMetrics {
            turns: self.turns.get(),
            waits: self.waits.get(),
            parks: self.parks.get(),
            spin_hits: self.spin_hits.get(),
            spin_misses: self.spin_misses.get(),
            gave_way: self.gave_way.get(),
            events: self.events.get(),
            polls: self.polls.get(),
            remote: self.remote.get(),
            timers: self.timers.get(),
            callbacks: self.callbacks.get(),
            panics: self.panics.get(),
        }
    }
}
