//! The kernel's ready list since 6.18, in user space: a linked list under a spinlock. The consumer
//! takes the whole list.
//!
//! A waiter yields its CPU at every look, because here, unlike in the kernel, the holder may have
//! lost its CPU.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Result;
use crossbeam_utils::CachePadded;
use spin::mutex::SpinMutex;
use spin::relax::Yield;

use crate::bell::Bell;
use crate::list;
use crate::nodes::{Nodes, Pool, STUB};

pub struct Spinlocked;

struct Ends {
    first: usize,
    last: usize,
    asleep: bool,
}

struct Shared {
    ends: CachePadded<SpinMutex<Ends, Yield>>,
    nodes: Nodes,
    bell: Bell,
}

pub struct Producer {
    shared: Arc<Shared>,
    pool: Pool,
}

pub struct Consumer(Arc<Shared>);

impl list::ReadyList for Spinlocked {
    type Producer = Producer;
    type Consumer = Consumer;

    fn build(producers: usize, pool: usize) -> Result<(Vec<Producer>, Consumer)> {
        let (nodes, pools) = Nodes::new(producers, pool);
        let ends = Ends { first: STUB, last: STUB, asleep: false };
        let ends = CachePadded::new(SpinMutex::new(ends));
        let shared = Arc::new(Shared { ends, nodes, bell: Bell::new()? });
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
        let mut ends = shared.ends.lock();
        at("locked, not linked");
        if ends.first == STUB {
            ends.first = node;
        } else {
            shared.nodes.get(ends.last).next.store(node, Relaxed);
        }
        ends.last = node;
        let rings = std::mem::replace(&mut ends.asleep, false);
        at("linked, still locked");
        drop(ends);
        if rings {
            at("before the ring");
            shared.bell.ring();
        }
    }
}

impl list::Consumer for Consumer {
    #[inline]
    fn take(&mut self, mut sink: impl FnMut(u64)) -> usize {
        let mut node = {
            let mut ends = self.0.ends.lock();
            ends.asleep = false;
            std::mem::replace(&mut ends.first, STUB)
        };
        let mut taken = 0;
        while node != STUB {
            let next = self.0.nodes.get(node).next.load(Relaxed);
            sink(self.0.nodes.take(node));
            taken += 1;
            node = next;
        }
        taken
    }

    fn arm(&mut self) -> bool {
        let mut ends = self.0.ends.lock();
        ends.asleep = ends.first == STUB;
        ends.asleep
    }

    fn bell(&self) -> Option<&Bell> {
        Some(&self.0.bell)
    }
}
