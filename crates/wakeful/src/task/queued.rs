//! The first field of everything in a loop's queues: a node, where it comes from, and when it was
//! sent.

use std::cell::Cell;
use std::panic::Location;
use std::ptr::NonNull;

use crate::ready_queue::{Kind, Node};
use crate::sys::clock::Clock;

/// The first field of every task and every closure.
#[repr(C)]
pub(super) struct Queued {
    /// The first field, so that a pointer to the node is also one to this.
    node: Node,
    /// Where the task was spawned, or the closure sent.
    spawned_at: &'static Location<'static>,
    /// When the node was pushed onto an empty queue, in ticks; 0 otherwise. Only the owner of the
    /// node's link may use it.
    pushed: Cell<u64>,
}

impl Queued {
    pub(super) fn new(kind: &'static Kind, spawned_at: &'static Location<'static>) -> Self {
        Self { node: Node::new(kind), spawned_at, pushed: Cell::new(0) }
    }

    /// Stamps `node` with the time. Called by another thread that is about to push it.
    ///
    /// # Safety
    /// The node is the first field of a `Queued`, alive, in no queue, and the caller's to push.
    #[inline]
    pub(super) unsafe fn stamp(node: NonNull<Node>) {
        // SAFETY: the caller's promise. 0 would be none.
        unsafe { node.cast::<Self>().as_ref() }.pushed.set(Clock::get().now() | 1);
    }

    /// Where the node comes from: the place that spawned the task or sent the closure.
    ///
    /// # Safety
    /// The node is the first field of a `Queued`, alive, and the loop's, on whose thread this is.
    #[inline]
    pub(super) unsafe fn spawned_at(node: NonNull<Node>) -> &'static Location<'static> {
        // SAFETY: the caller's promise.
        unsafe { node.cast::<Self>().as_ref() }.spawned_at
    }

    /// When the node was pushed, in ticks. 0: that is unknown.
    ///
    /// # Safety
    /// The same as for [`Queued::spawned_at`].
    #[inline]
    pub(super) unsafe fn take_stamp(node: NonNull<Node>) -> u64 {
        // SAFETY: the caller's promise.
        let pushed = unsafe { &node.cast::<Self>().as_ref().pushed };
        let stamp = pushed.get();
        if stamp != 0 {
            pushed.set(0);
        }
        stamp
    }
}
