//! A loop whose sleep belongs to another runtime, its host, on the same thread.
//!
//! The loop takes its turns within the host's root future. Between two polls of that, the host's
//! own tasks run on this thread, and the loop's queue says asleep, so that other threads ring. What
//! this thread makes runnable meanwhile needs no system call: it goes to the ready list, and the
//! root future is woken by the host's waker. The host looks at that before it sleeps.
//!
//! The order in which this thread sent things stays: the queue was empty when it began to say
//! asleep, so whatever this thread sent before is in the ready list.

use std::cell::{Cell, OnceCell};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::task::Waker;

use super::Queue;
use super::local::Local;
use crate::ready_queue::Node;

thread_local! {
    /// The loop of this thread that has a host, while that one runs it.
    static HOSTED: Cell<*const Local> = const { Cell::new(ptr::null()) };
}

/// Wakes the host's root future, from the first poll of that on.
#[derive(Debug, Default)]
pub(super) struct Host(OnceCell<Waker>);

impl Local {
    /// From now on the host's root future is polled, until the guard goes.
    pub(crate) fn enter_host(&self) -> InHost<'_> {
        InHost { outer: HOSTED.replace(self), _local: PhantomData }
    }

    /// How the root future is woken. It is the same waker in each of its polls.
    #[inline]
    pub(crate) fn know_host(&self, waker: &Waker) {
        self.host.0.get_or_init(|| waker.clone());
    }

    /// Has the root future polled again, if a host runs this loop. `false`: none does.
    pub(crate) fn wake_host(&self) -> bool {
        let is_hosted = ptr::eq(HOSTED.get(), self);
        if is_hosted && let Some(waker) = self.host.0.get() {
            waker.wake_by_ref();
        }
        is_hosted
    }
}

/// Queues `node` without a ring if its loop is this thread's, has a host, and sleeps. `false`: it
/// does not, and the node is still the caller's.
pub(super) fn push(queue: &Queue, node: NonNull<Node>) -> bool {
    // SAFETY: the pointer is set only while its `InHost` borrows the `Local`.
    let Some(local) = (unsafe { HOSTED.get().as_ref() }) else { return false };
    if !ptr::eq(&raw const *local.queue, queue) || !local.is_asleep() || local.late.has_begun() {
        return false;
    }
    local.push(node);
    local.wake_host();
    true
}

/// While this lives, the host runs its loop. Guards end in the reverse of their order.
pub(crate) struct InHost<'a> {
    outer: *const Local,
    _local: PhantomData<&'a Local>,
}

impl Drop for InHost<'_> {
    fn drop(&mut self) {
        HOSTED.set(self.outer);
    }
}
