//! The kernel's ready list until 6.17, in user space. Producers append under the read side of a
//! lock, several at a time, by swapping the tail and then linking. The consumer takes the whole
//! list under the write side, when no append can be half done.
//!
//! The lock is that of `std`, whose waiters sleep. As in a kernel with real-time preemption, a
//! holder can lose its CPU.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Result;
use crossbeam_utils::CachePadded;

use crate::bell::Bell;
use crate::list;
use crate::nodes::{Nodes, Pool, STUB};

pub struct ReadWriteLocked;

struct Shared {
    lock: RwLock<()>,
    nodes: Nodes,
    tail: CachePadded<AtomicUsize>,
    /// Written only under the write side, except by a producer that claims the ring.
    asleep: AtomicBool,
    bell: Bell,
}

pub struct Producer {
    shared: Arc<Shared>,
    pool: Pool,
}

pub struct Consumer(Arc<Shared>);

impl list::ReadyList for ReadWriteLocked {
    type Producer = Producer;
    type Consumer = Consumer;

    fn build(producers: usize, pool: usize) -> Result<(Vec<Producer>, Consumer)> {
        let (nodes, pools) = Nodes::new(producers, pool);
        let shared = Arc::new(Shared {
            lock: RwLock::new(()),
            nodes,
            tail: CachePadded::new(AtomicUsize::new(STUB)),
            asleep: AtomicBool::new(false),
            bell: Bell::new()?,
        });
        let producer = |pool| Producer { shared: shared.clone(), pool };
        Ok((pools.into_iter().map(producer).collect(), Consumer(shared.clone())))
    }
}

impl list::Producer for Producer {
    #[inline]
    fn push_at(&mut self, value: u64, mut at: impl FnMut(&'static str)) {
        at("before the push");
        let node = self.pool.node(value);
        let shared = &*self.shared;
        let reading = shared.lock.read().unwrap_or_else(PoisonError::into_inner);
        at("reading, not swapped");
        let previous = shared.tail.swap(node, AcqRel);
        at("swapped, not linked");
        shared.nodes.get(previous).next.store(node, Release);
        let rings = shared.asleep.load(Relaxed) && shared.asleep.swap(false, Relaxed);
        at("linked, still reading");
        drop(reading);
        if rings {
            at("before the ring");
            shared.bell.ring();
        }
    }
}

impl Consumer {
    /// Takes the whole list, and returns its first node. If the list is empty, sets `asleep` to the
    /// given value.
    #[inline]
    fn splice(&self, asleep: bool) -> usize {
        let shared = &*self.0;
        let writing = shared.lock.write().unwrap_or_else(PoisonError::into_inner);
        let first = shared.nodes.get(STUB).next.load(Ordering::Acquire);
        if first == STUB {
            shared.asleep.store(asleep, Relaxed);
        } else {
            shared.nodes.get(STUB).next.store(STUB, Relaxed);
            shared.tail.store(STUB, Relaxed);
            shared.asleep.store(false, Relaxed);
        }
        drop(writing);
        first
    }

    #[inline]
    fn walk(&self, first: usize, mut sink: impl FnMut(u64)) -> usize {
        let (mut node, mut taken) = (first, 0);
        while node != STUB {
            let next = self.0.nodes.get(node).next.load(Ordering::Acquire);
            sink(self.0.nodes.take(node));
            taken += 1;
            node = next;
        }
        taken
    }
}

impl list::Consumer for Consumer {
    #[inline]
    fn take(&mut self, sink: impl FnMut(u64)) -> usize {
        let first = self.splice(false);
        self.walk(first, sink)
    }

    fn arm(&mut self) -> bool {
        let shared = &*self.0;
        let _writing = shared.lock.write().unwrap_or_else(PoisonError::into_inner);
        let is_empty = shared.nodes.get(STUB).next.load(Ordering::Acquire) == STUB;
        shared.asleep.store(is_empty, Relaxed);
        is_empty
    }

    fn bell(&self) -> Option<&Bell> {
        Some(&self.0.bell)
    }
}
