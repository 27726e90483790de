//! Vyukov's linked queue: a producer swaps the tail, and then links. Between these two steps the
//! list is cut. What others push after the cut cannot be reached, so the consumer has to wait for
//! that producer. The queues of many runtimes are of this kind.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use anyhow::Result;
use crossbeam_utils::CachePadded;

use crate::bell::{Bell, Sleeper};
use crate::list;
use crate::nodes::{Nodes, Pool, STUB};

pub struct Vyukov;

struct Shared {
    tail: CachePadded<AtomicUsize>,
    nodes: Nodes,
}

pub struct Producer {
    shared: Arc<Shared>,
    sleeper: Sleeper,
    pool: Pool,
}

pub struct Consumer {
    shared: Arc<Shared>,
    sleeper: Sleeper,
    /// The node that was taken last. It is freed when the next one is reached.
    head: usize,
}

impl list::ReadyList for Vyukov {
    type Producer = Producer;
    type Consumer = Consumer;

    fn build(producers: usize, pool: usize) -> Result<(Vec<Producer>, Consumer)> {
        let (nodes, pools) = Nodes::new(producers, pool);
        let tail = CachePadded::new(AtomicUsize::new(STUB));
        let (shared, sleeper) = (Arc::new(Shared { tail, nodes }), Sleeper::new()?);
        let producer = |pool| Producer { shared: shared.clone(), sleeper: sleeper.clone(), pool };
        let ends = pools.into_iter().map(producer).collect();
        Ok((ends, Consumer { shared, sleeper, head: STUB }))
    }
}

impl list::Producer for Producer {
    #[inline]
    fn push_at(&mut self, value: u64, mut at: impl FnMut(&'static str)) {
        at("before the push");
        let node = self.pool.node(value);
        let previous = self.shared.tail.swap(node, AcqRel);
        at("swapped, not linked");
        self.shared.nodes.get(previous).next.store(node, Release);
        at("pushed");
        self.sleeper.after_push(at);
    }
}

impl Consumer {
    /// Returns the next node. Waits for a node that is being linked.
    #[inline]
    fn next(&self) -> Option<usize> {
        loop {
            match self.shared.nodes.get(self.head).next.load(Acquire) {
                STUB if self.shared.tail.load(Acquire) == self.head => return None,
                STUB => std::thread::yield_now(),
                next => return Some(next),
            }
        }
    }
}

impl list::Consumer for Consumer {
    #[inline]
    fn take(&mut self, mut sink: impl FnMut(u64)) -> usize {
        self.sleeper.lower();
        let mut taken = 0;
        while let Some(next) = self.next() {
            sink(self.shared.nodes.value(next));
            self.shared.nodes.free(self.head);
            self.head = next;
            taken += 1;
        }
        taken
    }

    fn arm(&mut self) -> bool {
        self.sleeper.raise();
        self.shared.tail.load(Relaxed) == self.head
    }

    fn bell(&self) -> Option<&Bell> {
        Some(&self.sleeper.bell)
    }
}
