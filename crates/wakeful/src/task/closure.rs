//! A closure on its way to a loop: a node with the code to run once.

use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;

use super::queued::Queued;
use super::{Queue, local};
use crate::priority::Priority;
use crate::ready_queue::{Kind, Node, Order};
use crate::sys::panics;

#[repr(C)]
struct Closure<F> {
    /// The first field, so that a pointer to the node is also one to the closure.
    queued: Queued,
    f: F,
}

impl<F: FnOnce()> Closure<F> {
    const NORMAL: &'static Kind = &Self::kind(Priority::Normal);
    const HIGH: &'static Kind = &Self::kind(Priority::High);

    const fn kind(priority: Priority) -> Kind {
        Kind {
            priority,
            run: Self::run,
            discard: Self::discard,
            leave: |_| (),
            order: |_| Order::AsQueued,
        }
    }

    unsafe fn run(node: NonNull<Node>) {
        // SAFETY: `send` made the node from a box of this type, and it is in no queue any more.
        let closure = unsafe { Box::from_raw(node.cast::<Self>().as_ptr()) };
        panics::contain(closure.f);
    }

    unsafe fn discard(node: NonNull<Node>) {
        // SAFETY: as in `run`.
        let closure = unsafe { Box::from_raw(node.cast::<Self>().as_ptr()) };
        panics::discard(closure);
    }
}

/// Sends `f` to the loop of `queue`, to be run there once.
///
/// # Errors
/// The closure comes back when the loop has ended.
#[track_caller]
pub(crate) fn send<F: FnOnce() + Send + 'static>(
    queue: &Arc<Queue>,
    priority: Priority,
    f: F,
) -> Result<(), F> {
    let kind = match priority {
        Priority::Normal => Closure::<F>::NORMAL,
        Priority::High => Closure::<F>::HIGH,
    };
    let closure = Box::new(Closure { queued: Queued::new(kind, Location::caller()), f });
    let node = NonNull::from(Box::leak(closure)).cast();
    // SAFETY: a fresh node, whose closure may be sent; `queue` is the caller's until the ring.
    unsafe { local::schedule_in_order(queue, node) }.map_err(|node| {
        // SAFETY: refused, so it is still ours.
        unsafe { Box::from_raw(node.cast::<Closure<F>>().as_ptr()) }.f
    })
}
