//! Nodes for the linked lists that are rebuilt here. They come from the same kind of pools as
//! wakeful's queue has in these experiments, so that no side allocates. (These nodes have 16 bytes,
//! wakeful's have 24.)
//!
//! Links are indices, so there is no unsafe code. [`STUB`] belongs to no producer. A node is free
//! while its value is zero.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crossbeam_utils::Backoff;

/// The node that is in no pool. It is the beginning of a list and its end.
pub const STUB: usize = 0;

#[derive(Default)]
pub struct Node {
    pub next: AtomicUsize,
    value: AtomicU64,
}

/// All nodes of a list.
#[derive(Clone)]
pub struct Nodes(Arc<[Node]>);

/// The nodes of one producer.
pub struct Pool {
    nodes: Nodes,
    first: usize,
    count: usize,
    next: usize,
}

impl Nodes {
    /// Makes the pools of `producers` producers, each with `each` nodes.
    pub fn new(producers: usize, each: usize) -> (Self, Vec<Pool>) {
        let nodes = (0..=producers * each).map(|_| Node::default()).collect();
        let nodes = Self(nodes);
        let pool = |producer| Pool {
            nodes: nodes.clone(),
            first: 1 + producer * each,
            count: each,
            next: 0,
        };
        let pools = (0..producers).map(pool).collect();
        (nodes, pools)
    }

    #[inline]
    pub fn get(&self, node: usize) -> &Node {
        &self.0[node]
    }

    /// Returns the value of a node that has left the list. The node then belongs to its producer
    /// again.
    #[inline]
    pub fn take(&self, node: usize) -> u64 {
        let value = self.value(node);
        self.free(node);
        value
    }

    #[inline]
    pub fn value(&self, node: usize) -> u64 {
        self.0[node].value.load(Relaxed)
    }

    #[inline]
    pub fn free(&self, node: usize) {
        self.0[node].value.store(0, Release);
    }
}

impl Pool {
    /// Returns a node with this value, which the caller links. Waits until a node is free.
    #[inline]
    pub fn node(&mut self, value: u64) -> usize {
        let index = self.first + self.next;
        let node = self.nodes.get(index);
        let backoff = Backoff::new();
        while node.value.load(Acquire) != 0 {
            backoff.snooze();
        }
        self.next = if self.next + 1 == self.count { 0 } else { self.next + 1 };
        node.next.store(STUB, Relaxed);
        node.value.store(value, Relaxed);
        index
    }
}
