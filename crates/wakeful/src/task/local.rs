//! What a loop's thread knows of its tasks: which exist, and which are ready now.
//!
//! A wake on the loop's own thread goes straight to the ready list here; only other threads use the
//! ready queue. The thread finds its loop's `Local` in a thread-local, set while a turn runs.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use slab::Slab;

use super::Queue;
use super::join::JoinHandle;
use super::queued::Queued;
use super::raw::{self, Header};
use super::ready::{Ready, Share};
use crate::driver::ticks::{Clock, between};
use crate::metrics::Counters;
use crate::priority::Priority;
use crate::ready_queue::{Drained, Node};

/// See the module's documentation.
pub(crate) struct Local {
    queue: Arc<Queue>,
    ready: Ready,
    #[cfg(debug_assertions)]
    shuffle: Option<super::shuffle::Shuffle>,
    tasks: RefCell<Slab<NonNull<Header>>>,
    /// The loop is ending: nothing new is accepted.
    ending: Cell<bool>,
    pub(super) counters: Arc<Counters>,
}

thread_local! {
    /// The loop whose turn runs on this thread.
    static CURRENT: Cell<*const Local> = const { Cell::new(ptr::null()) };
}

impl Local {
    pub(crate) fn new(queue: Arc<Queue>, counters: Arc<Counters>) -> Self {
        Self {
            queue,
            ready: Ready::default(),
            #[cfg(debug_assertions)]
            shuffle: super::shuffle::Shuffle::from_environment(),
            tasks: RefCell::default(),
            ending: Cell::new(false),
            counters,
        }
    }

    /// Makes this the thread's loop until the guard goes.
    pub(crate) fn enter(&self) -> Entered<'_> {
        Entered { outer: CURRENT.replace(self), _local: PhantomData }
    }

    /// Ready nodes that wait for their run.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Tasks that are not complete.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.borrow().len()
    }

    /// Takes what other threads pushed, behind what is ready here.
    #[inline]
    pub(crate) fn take_remote(&self) {
        self.accept(self.queue.drain());
    }

    #[inline]
    fn accept(&self, drained: Drained) {
        let before = self.ready();
        drained.for_each(|node| self.ready.push(node));
        let taken = self.ready() - before;
        if taken > 0 {
            self.counters.remote.add(taken as u64);
        }
    }

    pub(super) fn push(&self, node: NonNull<Node>) {
        self.ready.push(node);
    }

    /// A turn is about to run up to `most` nodes. Their order changes here, if the debug mode of [`super::shuffle`] asks for it.
    #[inline]
    pub(crate) fn before_running(&self, most: usize) {
        #[cfg(debug_assertions)]
        if let Some(shuffle) = &self.shuffle {
            self.ready.rearrange(most, shuffle);
        }
        #[cfg(not(debug_assertions))]
        let _ = most;
    }

    /// Runs the normal node that has been ready longest, and returns where it comes from. `None`: there is none, or
    /// a high one comes first. The loop must be entered.
    #[inline]
    pub(crate) fn run_normal(&self) -> Option<&'static Location<'static>> {
        self.ready.pop_normal().map(|node| self.run(node))
    }

    /// Runs the node whose turn it is, of either class, behind `ran` others of this turn, and returns where it comes from. `None`: there is none. The
    /// loop must be entered.
    pub(crate) fn run_by_class(
        &self,
        ran: u32,
        share: &mut Share,
    ) -> Option<&'static Location<'static>> {
        self.ready.pop(ran, share).map(|node| self.run(node))
    }

    #[inline]
    fn run(&self, node: NonNull<Node>) -> &'static Location<'static> {
        debug_assert!(ptr::eq(CURRENT.get(), self), "the loop is entered");
        // SAFETY: the node is out of its queue, so it is ours; we are on the loop's thread.
        let (spawned_at, pushed) = unsafe { (Queued::spawned_at(node), Queued::take_stamp(node)) };
        if pushed != 0 {
            self.count_latency(pushed);
        }
        // SAFETY: as above.
        unsafe { (node.as_ref().kind().run)(node) };
        spawned_at
    }

    #[inline(never)]
    fn count_latency(&self, pushed: u64) {
        let clock = Clock::get();
        self.counters.remote_latency.record_ticks(between(pushed, clock.now()), &clock);
    }

    /// Spawns a task of this loop. While the loop ends, the task is cancelled at once.
    #[track_caller]
    pub(crate) fn spawn<F: Future + 'static>(
        &self,
        priority: Priority,
        future: F,
    ) -> JoinHandle<F::Output> {
        let header = raw::allocate(priority, future, self.queue.clone());
        let node = header.cast::<Node>();
        // SAFETY: the handle's reference is the second of the two.
        let handle = unsafe { JoinHandle::new(header) };
        if self.ending.get() {
            // SAFETY: a task that no loop has met, on the thread of its loop.
            unsafe { (node.as_ref().kind().discard)(node) };
        } else {
            // The first run finds that it has no place yet, and adopts it.
            // SAFETY: a fresh task, scheduled and in no queue, with a reference for the loop. Pushed from outside a turn it
            // stays on this thread all the same.
            let scheduled = unsafe { schedule_in_order(&self.queue, node) };
            debug_assert!(scheduled.is_ok(), "only the end closes the queue");
        }
        handle
    }

    pub(super) fn adopt(&self, header: NonNull<Header>) -> usize {
        self.tasks.borrow_mut().insert(header)
    }

    pub(super) fn disown(&self, place: usize) {
        self.tasks.borrow_mut().try_remove(place);
    }

    /// The loop ends: refuses what comes from now on, and drops what there is, futures in place. The
    /// loop must be entered, so that what is dropped finds it.
    pub(crate) fn end(&self) {
        debug_assert!(ptr::eq(CURRENT.get(), self), "the loop is entered");
        // From here on, `schedule` sends this thread's wakes to the queue too, which refuses them.
        self.ending.set(true);
        let mut left = self.ready.take_all();
        left.extend(self.queue.close());
        for node in left {
            // SAFETY: taken out of its queue, on the loop's thread.
            unsafe { (node.as_ref().kind().discard)(node) };
        }
        loop {
            let next = self.tasks.borrow().iter().next().map(|(_, header)| *header);
            let Some(header) = next else { break };
            // SAFETY: a task in the list is alive and ours. `cancel` takes it off the list.
            unsafe { raw::cancel(header) };
        }
    }
}

/// Queues `node` for its loop: on the loop's own thread to its ready list, else to its queue.
///
/// # Errors
/// The node comes back when the loop has ended.
///
/// # Safety
/// As for [`ReadyQueue::push`](crate::ready_queue::ReadyQueue::push), and the node is the first field of a [`Queued`].
#[inline]
pub(super) unsafe fn schedule(
    queue: &Arc<Queue>,
    node: NonNull<Node>,
) -> Result<(), NonNull<Node>> {
    // SAFETY: the pointer is set only while its `Entered` borrows the `Local`.
    let current = unsafe { CURRENT.get().as_ref() };
    match current.filter(|local| Arc::ptr_eq(&local.queue, queue) && !local.ending.get()) {
        Some(local) => {
            local.ready.push(node);
            Ok(())
        }
        // SAFETY: the caller's promise.
        None => unsafe { push_remote(queue, node) },
    }
}

/// # Safety
/// As for [`schedule`].
#[inline(never)]
unsafe fn push_remote(queue: &Queue, node: NonNull<Node>) -> Result<(), NonNull<Node>> {
    // The oldest of a batch finds the queue empty, and says when it came.
    if !queue.is_pending() {
        // SAFETY: the caller's promise.
        unsafe { Queued::stamp(node) };
    }
    // SAFETY: the caller's promise.
    unsafe { queue.push(node) }
}

/// As [`schedule`], for what runs in the order in which its thread sent it: on the loop's own thread behind what the same thread has
/// sent from outside a turn, which is still in the queue.
///
/// # Errors
/// As for [`schedule`].
///
/// # Safety
/// As for [`schedule`].
pub(super) unsafe fn schedule_in_order(
    queue: &Arc<Queue>,
    node: NonNull<Node>,
) -> Result<(), NonNull<Node>> {
    // SAFETY: as in `schedule`.
    let current = unsafe { CURRENT.get().as_ref() };
    if let Some(local) =
        current.filter(|local| Arc::ptr_eq(&local.queue, queue) && !local.ending.get())
    {
        local.accept(queue.drain());
    }
    // SAFETY: the caller's promise.
    unsafe { schedule(queue, node) }
}

/// Counts an operation that the cooperative budget has put off, on the loop that runs on this thread.
#[cold]
pub(super) fn count_forced_yield() {
    // SAFETY: as in `schedule`.
    if let Some(local) = unsafe { CURRENT.get().as_ref() } {
        local.counters.forced_yields.add(1);
    }
}

/// Calls `f` with the loop that runs on this thread.
#[inline]
pub(super) fn with_current<R>(f: impl FnOnce(&Local) -> R) -> R {
    // SAFETY: as in `schedule`.
    f(unsafe { CURRENT.get().as_ref() }.expect("tasks run within a turn of their loop"))
}

/// While this lives, its loop is the thread's. Guards end in the reverse of their order.
pub(crate) struct Entered<'a> {
    outer: *const Local,
    _local: PhantomData<&'a Local>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.outer);
    }
}
