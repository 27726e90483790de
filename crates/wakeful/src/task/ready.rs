//! The nodes that are ready to run on a loop: a list for each [`Priority`], and which one is next.

use std::cell::Cell;
use std::ptr::{self, NonNull};

use crate::priority::Priority;
use crate::ready_queue::Node;
#[cfg(debug_assertions)]
use crate::ready_queue::Order;

/// The nodes that are ready, high and normal ones, each in the order in which they came.
#[derive(Default)]
pub(super) struct Ready {
    normal: List,
    high: List,
    len: Cell<usize>,
}

/// How the classes share the nodes that a turn runs. High-priority nodes usually come first. But
/// while normal nodes are ready, high ones get at most half of the turn, and never a whole stretch.
pub(crate) struct Share {
    high: u32,
    most: u32,
    stretch: u32,
    /// The place in each stretch that is for a normal node.
    normal_s_place: u32,
}

impl Share {
    /// For a turn of up to `most` nodes, two or more. Within each `stretch` nodes both classes get
    /// at least one. A node of the class `first` is the first one.
    pub(crate) fn new(most: u32, stretch: u32, first: Priority) -> Self {
        let normal_s_place = match first {
            Priority::Normal => 0,
            Priority::High => stretch - 1,
        };
        Self { high: 0, most, stretch, normal_s_place }
    }

    /// How many high-priority nodes this has let run.
    pub(crate) fn high(&self) -> u32 {
        self.high
    }

    /// Is a normal node next, if there is one, after `ran` nodes of this turn?
    fn is_normal_s_turn(&self, ran: u32) -> bool {
        self.high >= self.most.div_ceil(2) || ran % self.stretch == self.normal_s_place
    }
}

impl Ready {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.get()
    }

    #[inline]
    pub(super) fn push(&self, node: NonNull<Node>) {
        // SAFETY: the node is the loop's, and alive.
        let list = match unsafe { node.as_ref() }.kind().priority {
            Priority::Normal => &self.normal,
            Priority::High => &self.high,
        };
        list.push(node);
        self.len.set(self.len.get() + 1);
    }

    #[inline]
    pub(super) fn has_normal(&self) -> bool {
        !self.normal.is_empty()
    }

    /// The normal node that has been ready longest, as long as no high one is ready.
    #[inline]
    pub(super) fn pop_normal(&self) -> Option<NonNull<Node>> {
        if !self.high.is_empty() {
            return None;
        }
        self.normal.pop().inspect(|_| self.len.set(self.len.get() - 1))
    }

    /// The node that is next after `ran` others of this turn: the one of its class that has been
    /// ready longest.
    pub(super) fn pop(&self, ran: u32, share: &mut Share) -> Option<NonNull<Node>> {
        let normal = if share.is_normal_s_turn(ran) { self.normal.pop() } else { None };
        let high = || self.high.pop().inspect(|_| share.high += 1);
        let node = normal.or_else(high).or_else(|| self.normal.pop())?;
        self.len.set(self.len.get() - 1);
        Some(node)
    }

    /// Takes all nodes, at the loop's end.
    pub(super) fn take_all(&self) -> Vec<NonNull<Node>> {
        self.len.set(0);
        [&self.high, &self.normal]
            .into_iter()
            .flat_map(|list| std::iter::from_fn(|| list.pop()))
            .collect()
    }

    /// Shuffles the nodes whose order is not promised, among the first `most` of each class.
    #[cfg(debug_assertions)]
    pub(super) fn rearrange(&self, most: usize, shuffle: &super::shuffle::Shuffle) {
        self.high.rearrange(most, shuffle);
        self.normal.rearrange(most, shuffle);
    }
}

/// An intrusive FIFO of nodes that belong to the loop.
struct List {
    first: Cell<*mut Node>,
    last: Cell<*mut Node>,
}

impl Default for List {
    fn default() -> Self {
        Self { first: Cell::new(ptr::null_mut()), last: Cell::new(ptr::null_mut()) }
    }
}

impl List {
    #[inline]
    fn is_empty(&self) -> bool {
        self.first.get().is_null()
    }

    #[inline]
    fn push(&self, node: NonNull<Node>) {
        // SAFETY: the node is the loop's, in no queue, and this is the loop's thread; so is the
        // last.
        unsafe {
            Node::set_next(node, ptr::null_mut());
            match NonNull::new(self.last.replace(node.as_ptr())) {
                Some(last) => Node::set_next(last, node.as_ptr()),
                None => self.first.set(node.as_ptr()),
            }
        }
    }

    #[cfg(debug_assertions)]
    fn rearrange(&self, most: usize, shuffle: &super::shuffle::Shuffle) {
        let mut all: Vec<_> = std::iter::from_fn(|| self.pop()).take(most).collect();
        let rest = (self.first.replace(ptr::null_mut()), self.last.replace(ptr::null_mut()));
        let free: Vec<usize> = (0..all.len())
            // SAFETY: the nodes are in no queue, so they are ours, on the loop's thread.
            .filter(|&at| unsafe { (all[at].as_ref().kind().order)(all[at]) } == Order::Any)
            .collect();
        let mut shuffled: Vec<_> = free.iter().map(|&at| all[at]).collect();
        shuffle.shuffle(&mut shuffled);
        for (at, node) in free.into_iter().zip(shuffled) {
            all[at] = node;
        }
        all.into_iter().for_each(|node| self.push(node));
        if !rest.0.is_null() {
            match NonNull::new(self.last.replace(rest.1)) {
                // SAFETY: as in `push`.
                Some(last) => unsafe { Node::set_next(last, rest.0) },
                None => self.first.set(rest.0),
            }
        }
    }

    #[inline]
    fn pop(&self) -> Option<NonNull<Node>> {
        let node = NonNull::new(self.first.get())?;
        // SAFETY: as in `push`.
        let next = unsafe { Node::next(node) };
        self.first.set(next);
        if next.is_null() {
            self.last.set(ptr::null_mut());
        }
        Some(node)
    }
}
