//! The bare queue, for this project's own benches and experiments.

use super::*;

mod events;

pub use events::{BoxedProducer, EventConsumer, EventQueue, PooledProducer, Ring, Source};

struct NoBell;

impl Bell for NoBell {
    fn ring(&self) {}
}

/// A queue and nodes to push, without a loop around them.
#[derive(Debug)]
pub struct PushDrain {
    queue: ReadyQueue<NoBell>,
    nodes: Box<[Node]>,
}

static NOTHING: Kind = Kind {
    priority: Priority::Normal,
    run: nothing,
    discard: nothing,
    leave: nothing,
    order: |_| Order::AsQueued,
};

unsafe fn nothing(_: NonNull<Node>) {}

impl PushDrain {
    /// Makes a queue and this number of nodes.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        let nodes = (0..nodes).map(|_| Node::new(&NOTHING)).collect();
        Self { queue: ReadyQueue::new(NoBell), nodes }
    }

    /// Pushes every node, drains them all, and returns how many came.
    pub fn round(&mut self) -> usize {
        for node in &mut self.nodes {
            // SAFETY: drained below before anybody can touch the node again.
            let pushed = unsafe { self.queue.push(NonNull::from(node)) };
            debug_assert!(pushed.is_ok());
        }
        self.queue.drain().count()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}
