//! Queues of values from other crates. They have no sleep state, so each gets a separate
//! [`Sleeper`].
//!
//! `SegQueue` is the best known. `concurrent-queue` is the run queue of smol's executors, which is
//! exactly this use.

use std::sync::Arc;

use anyhow::Result;
use concurrent_queue::ConcurrentQueue;
use crossbeam_queue::SegQueue;

use crate::bell::{Bell, Sleeper};
use crate::list;

/// A queue of values with many producers.
pub trait Queue: Send + Sync + Sized + 'static {
    fn unbounded() -> Self;
    fn put(&self, value: u64);
    fn get(&self) -> Option<u64>;
}

impl Queue for SegQueue<u64> {
    fn unbounded() -> Self {
        Self::new()
    }

    #[inline]
    fn put(&self, value: u64) {
        self.push(value);
    }

    #[inline]
    fn get(&self) -> Option<u64> {
        self.pop()
    }
}

impl Queue for ConcurrentQueue<u64> {
    fn unbounded() -> Self {
        ConcurrentQueue::unbounded()
    }

    #[inline]
    fn put(&self, value: u64) {
        // The queue is never closed.
        let _ = self.push(value);
    }

    #[inline]
    fn get(&self) -> Option<u64> {
        self.pop().ok()
    }
}

pub struct Values<Q>(std::marker::PhantomData<Q>);

pub struct Producer<Q> {
    queue: Arc<Q>,
    sleeper: Sleeper,
}

pub struct Consumer<Q> {
    queue: Arc<Q>,
    sleeper: Sleeper,
    /// The value that [`list::Consumer::arm`] found in its last look.
    found: Option<u64>,
}

impl<Q: Queue> list::ReadyList for Values<Q> {
    type Producer = Producer<Q>;
    type Consumer = Consumer<Q>;

    fn build(producers: usize, _pool: usize) -> Result<(Vec<Producer<Q>>, Consumer<Q>)> {
        let (queue, sleeper) = (Arc::new(Q::unbounded()), Sleeper::new()?);
        let producer = |_| Producer { queue: queue.clone(), sleeper: sleeper.clone() };
        let ends = (0..producers).map(producer).collect();
        Ok((ends, Consumer { queue, sleeper, found: None }))
    }
}

impl<Q: Queue> list::Producer for Producer<Q> {
    #[inline]
    fn push_at(&mut self, value: u64, mut at: impl FnMut(&'static str)) {
        at("before the push");
        self.queue.put(value);
        at("pushed");
        self.sleeper.after_push(at);
    }
}

impl<Q: Queue> list::Consumer for Consumer<Q> {
    #[inline]
    fn take(&mut self, mut sink: impl FnMut(u64)) -> usize {
        self.sleeper.lower();
        let mut taken = 0;
        while let Some(value) = self.found.take().or_else(|| self.queue.get()) {
            sink(value);
            taken += 1;
        }
        taken
    }

    fn arm(&mut self) -> bool {
        self.sleeper.raise();
        self.found = self.queue.get();
        self.found.is_none()
    }

    fn bell(&self) -> Option<&Bell> {
        Some(&self.sleeper.bell)
    }
}
