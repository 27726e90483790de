//! Counts what the shards hold. Any thread can read the numbers.
//!
//! Each loop writes only its own numbers, so a change is a load and a store. They are atomic so
//! that other threads can read them. The cap is on the sum: a loop adds up all numbers before it
//! takes more. Loops that do so at the same time may exceed the cap together, by one value each.
//! The large buffers of connections have a separate cap, so that a client's unfinished commands
//! cannot make the writes of others fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::operation::Refused;
use crate::buffers::Budget;

/// The numbers of all shards.
#[derive(Debug)]
pub(in crate::kv) struct Meters {
    cap: usize,
    buffers: Arc<Budget>,
    shards: Box<[Numbers]>,
}

/// The numbers are on separate cache lines, because they change all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Numbers {
    used: AtomicUsize,
    keys: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    commands: AtomicU64,
}

impl Meters {
    /// Makes meters for this number of shards, which may hold `cap` bytes together.
    pub(in crate::kv) fn new(cap: usize, buffers: Arc<Budget>, shards: usize) -> Self {
        Self { cap, buffers, shards: (0..shards).map(|_| Numbers::default()).collect() }
    }

    pub(in crate::kv) fn cap(&self) -> usize {
        self.cap
    }

    /// What the large buffers of connections take.
    pub(in crate::kv) fn buffers(&self) -> &Arc<Budget> {
        &self.buffers
    }

    /// Bytes that keys and values take.
    #[inline]
    pub(in crate::kv) fn used(&self) -> usize {
        self.shards.iter().map(|shard| shard.used.load(Ordering::Relaxed)).sum()
    }

    pub(in crate::kv) fn keys(&self) -> usize {
        self.shards.iter().map(|shard| shard.keys.load(Ordering::Relaxed)).sum()
    }

    /// Lookups that met a key.
    pub(in crate::kv) fn hits(&self) -> u64 {
        self.shards.iter().map(|shard| shard.hits.load(Ordering::Relaxed)).sum()
    }

    /// Lookups that did not.
    pub(in crate::kv) fn misses(&self) -> u64 {
        self.shards.iter().map(|shard| shard.misses.load(Ordering::Relaxed)).sum()
    }

    /// Commands of the connections of all loops.
    pub(in crate::kv) fn commands(&self) -> u64 {
        self.shards.iter().map(|shard| shard.commands.load(Ordering::Relaxed)).sum()
    }

    /// Counts commands that connections of this loop sent. To be called on that loop only.
    #[inline]
    pub(in crate::kv) fn count_commands(&self, shard: usize, count: u64) {
        add(&self.shards[shard].commands, count);
    }
}

/// Where one shard writes its numbers.
#[derive(Debug)]
pub(in crate::kv) struct Meter {
    all: Arc<Meters>,
    shard: usize,
}

impl Meter {
    /// For the loop of this number, and only once.
    pub(in crate::kv) fn new(all: Arc<Meters>, shard: usize) -> Self {
        Self { all, shard }
    }

    #[inline]
    pub(super) fn buffers(&self) -> &Arc<Budget> {
        &self.all.buffers
    }

    fn own(&self) -> &Numbers {
        &self.all.shards[self.shard]
    }

    pub(super) fn keys(&self) -> usize {
        self.own().keys.load(Ordering::Relaxed)
    }

    /// Bytes that keys and values of this shard take.
    pub(super) fn used(&self) -> usize {
        self.own().used.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn looked_up(&self, found: bool) {
        add(if found { &self.own().hits } else { &self.own().misses }, 1);
    }

    /// Is there room for `new` bytes instead of `old` ones?
    #[inline]
    pub(super) fn check(&self, old: usize, new: usize) -> Result<(), Refused> {
        let fits = new <= old || self.all.used().saturating_add(new - old) <= self.all.cap;
        if fits { Ok(()) } else { Err(Refused::OutOfMemory) }
    }

    /// Notes that an entry of `old` bytes has become one of `new`, after [`check`](Self::check).
    #[inline]
    pub(super) fn resize(&self, old: usize, new: usize) {
        if old != new {
            let used = &self.own().used;
            used.store(used.load(Ordering::Relaxed) - old + new, Ordering::Relaxed);
        }
    }

    /// One more entry, after [`check`](Self::check).
    #[inline]
    pub(super) fn add(&self, size: usize) {
        self.resize(0, size);
        let keys = &self.own().keys;
        keys.store(keys.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// One entry less.
    #[inline]
    pub(super) fn remove(&self, size: usize) {
        let Numbers { used, keys, .. } = self.own();
        used.store(used.load(Ordering::Relaxed) - size, Ordering::Relaxed);
        keys.store(keys.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    pub(super) fn clear(&self) {
        self.own().used.store(0, Ordering::Relaxed);
        self.own().keys.store(0, Ordering::Relaxed);
    }
}

/// Adds to a counter. Only one thread writes it.
#[inline]
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}
