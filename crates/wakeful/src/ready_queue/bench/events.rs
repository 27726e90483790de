//! The queue as a list of events, for experiments: nodes with a value, three ways to own them, and
//! no loop around them.
//!
//! The push is [`ReadyQueue::push_at`] itself. Invariant: a node that may be in the queue is alive.
//! A boxed node belongs to the queue from its push on. The queue keeps pools and sources until its
//! end, even if their handles are dropped.
//!
//! A pooled node stands for a task that is woken: its memory exists already, and it is queued again
//! only after the consumer has taken it. A boxed node stands for what a queue of values would
//! allocate. A source has a counter, and is queued when the counter leaves zero.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel};
use std::sync::{Arc, Mutex, PoisonError};

use super::*;

/// How the consumer is woken when it sleeps.
pub trait Ring {
    /// Makes the consumer's present sleep end, or, if it has not begun yet, its next one.
    fn ring(&self);
}

#[derive(Debug)]
struct ForeignBell<R>(R);

impl<R: Ring> Bell for ForeignBell<R> {
    #[inline]
    fn ring(&self) {
        self.0.ring();
    }
}

/// The kind of a node says where its memory comes from, and where it goes.
static POOLED: Kind = Kind {
    priority: Priority::Normal,
    run: nothing,
    discard: nothing,
    leave: nothing,
    order: |_| Order::AsQueued,
};
static SOURCE: Kind = Kind {
    priority: Priority::Normal,
    run: nothing,
    discard: nothing,
    leave: nothing,
    order: |_| Order::AsQueued,
};
static BOXED: Kind = Kind {
    priority: Priority::Normal,
    run: nothing,
    discard: nothing,
    leave: nothing,
    order: |_| Order::AsQueued,
};

/// A node with a value. If the value is zero, the node is not queued, and its owner may queue it.
#[derive(Debug)]
#[repr(C)]
struct Item {
    node: Node,
    value: AtomicU64,
}

// SAFETY: the link is touched only by the thread that has the node: its producer until the push,
// the consumer from the drain until it has set the value to zero. The rest is atomic or constant.
unsafe impl Send for Item {}
// SAFETY: as above.
unsafe impl Sync for Item {}

impl Item {
    fn new(value: u64, kind: &'static Kind) -> Self {
        Self { node: Node::new(kind), value: AtomicU64::new(value) }
    }

    #[inline(always)]
    fn as_node(&self) -> NonNull<Node> {
        NonNull::from(self).cast()
    }
}

struct Shared<R> {
    queue: ReadyQueue<ForeignBell<R>>,
    /// Keeps every pool and source, because their nodes may be queued.
    kept: Mutex<Vec<Arc<[Item]>>>,
}

impl<R: Ring> Shared<R> {
    /// # Safety
    /// The same as for [`ReadyQueue::push`], and the node is the first field of an [`Item`] that
    /// lives as long as the queue, or of a boxed one.
    #[inline(always)]
    unsafe fn push_at(&self, node: NonNull<Node>, at: impl FnMut(Point)) {
        // SAFETY: the caller's promise.
        let pushed = unsafe { self.queue.push_at(node, at) };
        debug_assert!(pushed.is_ok(), "only the end of the queue closes it");
    }

    fn keep(&self, slots: usize, kind: &'static Kind) -> Arc<[Item]> {
        let slots: Arc<[Item]> = (0..slots).map(|_| Item::new(0, kind)).collect();
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(slots.clone());
        slots
    }
}

impl<R> Drop for Shared<R> {
    fn drop(&mut self) {
        let closed = ptr::without_provenance_mut(CLOSED);
        let rest = Drained::reversed(self.queue.head.swap(closed, AcqRel));
        rest.for_each(|node| _ = take(node));
    }
}

/// Returns the value of a node that has left the queue. The node then belongs to its owner again.
#[inline(always)]
fn take(node: NonNull<Node>) -> u64 {
    let item = node.cast::<Item>();
    // SAFETY: only items are pushed here, and this one is alive: boxed ones are freed below, the
    // others are kept.
    let shared = unsafe { item.as_ref() };
    // Both stores are Release, because the owner that reads zero may write the link.
    if ptr::eq(shared.node.kind, &POOLED) {
        let value = shared.value.load(Relaxed);
        shared.value.store(0, Release);
        return value;
    }
    if ptr::eq(shared.node.kind, &SOURCE) {
        // Others may add to the value at the same time.
        return shared.value.swap(0, AcqRel);
    }
    // SAFETY: a boxed node's only pointer, out of the queue.
    unsafe { Box::from_raw(item.as_ptr()) }.value.into_inner()
}

/// A ready queue whose nodes carry values. Clones are the same queue.
pub struct EventQueue<R>(Arc<Shared<R>>);

/// The side that takes. There is one.
pub struct EventConsumer<R>(Arc<Shared<R>>);

/// A producer with a pool of nodes: nothing is allocated for a push.
pub struct PooledProducer<R> {
    shared: Arc<Shared<R>>,
    pool: Arc<[Item]>,
    next: usize,
}

/// A producer that allocates a node for each push.
pub struct BoxedProducer<R>(Arc<Shared<R>>);

/// A count of events, which is queued when it leaves zero.
pub struct Source<R> {
    shared: Arc<Shared<R>>,
    slot: Arc<[Item]>,
}

impl<R: Ring> EventQueue<R> {
    /// Makes an empty queue and its consumer.
    #[must_use]
    pub fn new(ring: R) -> (Self, EventConsumer<R>) {
        let queue = ReadyQueue::new(ForeignBell(ring));
        let shared = Arc::new(Shared { queue, kept: Mutex::default() });
        (Self(shared.clone()), EventConsumer(shared))
    }

    /// Makes a producer with this number of nodes.
    ///
    /// # Panics
    /// `nodes` is zero.
    #[must_use]
    pub fn pooled(&self, nodes: usize) -> PooledProducer<R> {
        assert!(nodes > 0, "a pool needs a node");
        PooledProducer { shared: self.0.clone(), pool: self.0.keep(nodes, &POOLED), next: 0 }
    }

    /// Makes a producer that allocates a node for each push.
    #[must_use]
    pub fn boxed(&self) -> BoxedProducer<R> {
        BoxedProducer(self.0.clone())
    }

    /// Makes a source at zero.
    #[must_use]
    pub fn source(&self) -> Source<R> {
        Source { shared: self.0.clone(), slot: self.0.keep(1, &SOURCE) }
    }
}

impl<R: Ring> PooledProducer<R> {
    /// Queues `value`, which is not zero. `false`: the pool's next node is still queued.
    #[inline]
    pub fn push(&mut self, value: u64) -> bool {
        self.push_at(value, |_| {})
    }

    /// [`push`](Self::push), which calls `at` at each point of the queue's own push.
    #[inline(always)]
    pub fn push_at(&mut self, value: u64, at: impl FnMut(Point)) -> bool {
        debug_assert_ne!(value, 0, "zero is a free node");
        let item = &self.pool[self.next];
        // Acquire: the consumer no longer uses the link.
        if item.value.load(Acquire) != 0 {
            return false;
        }
        item.value.store(value, Relaxed);
        self.next = if self.next + 1 == self.pool.len() { 0 } else { self.next + 1 };
        // SAFETY: the node was free, and only this producer takes it from its pool, which the queue
        // keeps.
        unsafe { self.shared.push_at(item.as_node(), at) };
        true
    }
}

impl<R: Ring> BoxedProducer<R> {
    /// Queues `value`.
    #[inline]
    pub fn push(&mut self, value: u64) {
        self.push_at(value, |_| {});
    }

    /// [`push`](Self::push), which calls `at` at each point of the queue's own push.
    #[inline(always)]
    pub fn push_at(&mut self, value: u64, at: impl FnMut(Point)) {
        let item = NonNull::from(Box::leak(Box::new(Item::new(value, &BOXED))));
        // SAFETY: a fresh node, which belongs to the queue from here on.
        unsafe { self.0.push_at(item.cast(), at) };
    }
}

impl<R: Ring> Source<R> {
    /// Adds `count` events, and queues the source if it had none.
    #[inline]
    pub fn add(&self, count: u64) {
        self.add_at(count, |_| {});
    }

    /// [`add`](Self::add), which calls `at` at each point of the queue's own push, if there is one.
    #[inline(always)]
    pub fn add_at(&self, count: u64, at: impl FnMut(Point)) {
        let item = &self.slot[0];
        if item.value.fetch_add(count, AcqRel) == 0 {
            // SAFETY: who leaves zero queues it, and it is zero again only after the consumer has
            // taken it; the queue keeps it.
            unsafe { self.shared.push_at(item.as_node(), at) };
        }
    }
}

impl<R: Ring> EventConsumer<R> {
    /// Takes everything that was pushed, oldest first. Returns how many nodes that were.
    #[inline]
    pub fn drain(&mut self, mut sink: impl FnMut(u64)) -> usize {
        let mut taken = 0;
        for node in self.0.queue.drain() {
            sink(take(node));
            taken += 1;
        }
        taken
    }

    /// See [`ReadyQueue::try_sleep`]: from `true` until the next drain, a pusher rings, unless a
    /// ring of this sleep is complete.
    #[inline]
    pub fn try_sleep(&mut self) -> bool {
        self.0.queue.try_sleep()
    }
}

impl<R> Clone for EventQueue<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

macro_rules! debug_by_name {
    ($($name:ident),*) => {$(
        impl<R> fmt::Debug for $name<R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}
debug_by_name!(EventQueue, EventConsumer, PooledProducer, BoxedProducer, Source);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Clone, Default)]
    struct Counting(Arc<AtomicUsize>);

    impl Ring for Counting {
        fn ring(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn values_come_in_order_whoever_owns_the_nodes() {
        let (queue, mut consumer) = EventQueue::new(Counting::default());
        let (mut pooled, mut boxed, source) = (queue.pooled(2), queue.boxed(), queue.source());
        assert!(pooled.push(1) && pooled.push(2));
        assert!(!pooled.push(3), "both nodes are queued");
        boxed.push(4);
        source.add(5);
        source.add(6);
        drop((pooled, boxed, source));
        let mut values = Vec::new();
        assert_eq!(consumer.drain(|value| values.push(value)), 4);
        assert_eq!(values, [1, 2, 4, 11]);
    }

    #[test]
    fn what_is_left_in_the_queue_is_freed_with_it() {
        let ring = Counting::default();
        let (queue, mut consumer) = EventQueue::new(ring.clone());
        assert!(consumer.try_sleep());
        queue.boxed().push(1);
        assert!(queue.pooled(1).push(1));
        assert_eq!(ring.0.load(Relaxed), 1);
    }
}
