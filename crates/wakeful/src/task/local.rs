//! What a loop's thread knows of its tasks: which exist, and which are ready now.
//!
//! A wake on the loop's own thread goes straight to the ready list here; only other threads use the
//! ready queue. The thread finds its loop's `Local` in a thread-local, set while a turn runs.
//!
//! # No local push is late
//! A push to the ready list rings nobody. So it must never come between the moment when the loop
//! decides to sleep and the end of its wait, although user code may run there: a log line calls a
//! `tracing` subscriber, which may wake a task. One rule guarantees this: **the thread-local names
//! a loop only while that loop's queue is marked awake.**
//!
//! * [`Local::try_sleep`] marks the queue asleep, and clears the thread-local. From then on a wake
//!   on this thread takes the path of every other thread: it pushes to the queue, finds ASLEEP, and
//!   rings. The proof in `ready_queue` covers it.
//! * [`Local::take_remote`] drains the queue, which marks it awake, and sets the thread-local
//!   again.
//! * [`Local::enter`] does not set it for a loop that is asleep (one that is driven by another
//!   loop, between `prepare_to_park` and the next turn).
//!
//! Nothing else sets it, and only [`Local::take_remote`] and the push of a loop that the
//! thread-local names drain the queue. So no code between the two can push locally, or clear
//! ASLEEP by a drain. A push while the loop is awake pays nothing for this.
//!
//! Code that queues work without a node (callbacks, timers) checks [`Local::is_asleep`] afterwards.
//!
//! A loop that has Tokio as its guest shares its thread with Tokio's tasks, which run while the
//! queue is marked asleep. Their wakes need no bell: see `hosted`.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::task::Waker;

use slab::Slab;

use super::Queue;
use super::header::{self, Header};
#[cfg(feature = "tokio")]
use super::hosted::Host;
use super::id::Id;
use super::late::Late;
use super::queued::Queued;

use super::ready::{Ready, Share};
use crate::heartbeat::Running;
use crate::metrics::Counters;
use crate::ready_queue::{Drained, Node};
use crate::sys::clock::{Clock, between};
use crate::sys::fork_check::{Process, ProcessMark};
use crate::sys::panics;

/// The loop's tasks and its ready list, on its thread.
pub(crate) struct Local {
    pub(super) queue: Arc<Queue>,
    ready: Ready,
    #[cfg(debug_assertions)]
    shuffle: Option<super::shuffle::Shuffle>,
    tasks: RefCell<Slab<NonNull<Header>>>,
    /// The task that is being polled, or whose future is being dropped.
    running: Cell<Option<Id>>,
    /// Where the loop reports to another process which task runs.
    told: Option<Running>,
    /// Whether the queue is marked asleep: between a `try_sleep` that succeeded and the next
    /// `take_remote`.
    asleep: Cell<bool>,
    /// Futures that are spawned while the loop ends. Once `late` has begun, no new task is
    /// accepted.
    pub(super) late: Late,
    pub(super) counters: Arc<Counters>,
    process: ProcessMark,
    #[cfg(feature = "tokio")]
    host: Host,
}

thread_local! {
    /// The loop whose turn runs on this thread, while its queue is marked awake.
    static CURRENT: Cell<*const Local> = const { Cell::new(ptr::null()) };
}

#[cfg(feature = "tokio")]
thread_local! {
    /// The loop of this thread that has a host, while the host runs it: see [`super::hosted`].
    static HOSTED: Cell<*const Local> = const { Cell::new(ptr::null()) };
}

impl Local {
    /// `told` reports to another process which task runs.
    pub(crate) fn new(queue: Arc<Queue>, counters: Arc<Counters>, told: Option<Running>) -> Self {
        panics::count_by(count_panic);
        Self {
            queue,
            ready: Ready::default(),
            #[cfg(debug_assertions)]
            shuffle: super::shuffle::Shuffle::from_environment(),
            tasks: RefCell::default(),
            running: Cell::new(None),
            told,
            asleep: Cell::new(false),
            late: Late::default(),
            counters,
            process: ProcessMark::now(),
            #[cfg(feature = "tokio")]
            host: Host::default(),
        }
    }

    /// Makes this the thread's loop until the guard is dropped. While the loop is asleep, that
    /// takes effect only with the next [`take_remote`](Self::take_remote).
    pub(crate) fn enter(&self) -> Entered<'_> {
        let named: *const Self = if self.asleep.get() { ptr::null() } else { self };
        Entered { outer: CURRENT.replace(named), _local: PhantomData }
    }

    /// Called when the loop is about to sleep. `false`: another thread has pushed, so the loop must
    /// stay awake. After `true`, every push rings until the next
    /// [`take_remote`](Self::take_remote), even a push of this thread. The loop must be entered.
    #[inline]
    pub(crate) fn try_sleep(&self) -> bool {
        let asleep = self.queue.try_sleep();
        if asleep {
            self.asleep.set(true);
            CURRENT.set(ptr::null());
        }
        asleep
    }

    /// Is the queue marked asleep? If so, anything that this thread adds without a push must wake
    /// the loop.
    #[inline]
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.get()
    }

    /// How many nodes are ready to run.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Is a normal node among those that are ready to run?
    #[inline]
    pub(crate) fn has_normal(&self) -> bool {
        self.ready.has_normal()
    }

    /// How many tasks are not complete.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.borrow().len()
    }

    /// Takes what other threads pushed, and appends it to what is ready here. This marks the queue
    /// awake. The loop must be entered.
    #[inline]
    pub(crate) fn take_remote(&self) {
        self.accept(self.queue.drain());
        self.asleep.set(false);
        CURRENT.set(self);
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

    /// Called before a turn runs up to `most` nodes. Changes their order, if the debug mode of
    /// [`super::shuffle`] is on.
    #[inline]
    pub(crate) fn before_running(&self, most: usize) {
        #[cfg(debug_assertions)]
        if let Some(shuffle) = &self.shuffle {
            self.ready.rearrange(most, shuffle);
        }
        #[cfg(not(debug_assertions))]
        let _ = most;
    }

    /// Runs the normal node that has been ready longest, and returns where it comes from. `None`:
    /// there is none, or a high one comes first. The loop must be entered.
    #[inline]
    pub(crate) fn run_normal(&self) -> Option<&'static Location<'static>> {
        self.ready.pop_normal().map(|node| self.run(node))
    }

    /// Runs the node whose turn it is, of either class, after `ran` other nodes of this turn, and
    /// returns where it comes from. `None`: there is none. The loop must be entered.
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
        if let Some(told) = &self.told {
            told.runs(spawned_at);
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

    /// The reports to another process about which task runs. `None`: nobody is told.
    #[inline]
    pub(crate) fn told(&self) -> Option<&Running> {
        self.told.as_ref()
    }

    /// Called before something that is no node runs: callbacks, hooks, or a guest's tasks.
    pub(crate) fn runs_no_node(&self) {
        if let Some(told) = &self.told {
            told.runs_none();
        }
    }

    /// The task that is running, if there is one.
    pub(super) fn running(&self) -> Option<Id> {
        self.running.get()
    }

    /// Notes that `task` runs from now on, or no task. Returns the previous one.
    #[inline]
    pub(super) fn set_running(&self, task: Option<Id>) -> Option<Id> {
        self.running.replace(task)
    }

    pub(super) fn adopt(&self, header: NonNull<Header>) -> usize {
        self.tasks.borrow_mut().insert(header)
    }

    /// Wakes the task that awaits the handle of a task that has ended. In a forked child its waker
    /// may be of an executor of the parent's, and may take a lock that another thread held at the
    /// fork. So the waker is neither called nor dropped there, unless it is the child's own, or
    /// that of a set, which takes no lock.
    pub(super) fn wake_joiner(&self, header: &Header) {
        let Some(joiner) = header.joiner.take() else { return };
        match (self.process.is_forked(), header.state.may_wake_in_child()) {
            (true, false) => mem::forget(joiner),
            // It is that of a set, which panics in neither its wake nor its drop.
            (false, true) => joiner.wake(),
            _ => panics::wake(joiner),
        }
    }

    pub(super) fn disown(&self, place: usize) {
        self.tasks.borrow_mut().try_remove(place);
    }

    /// Ends the loop: refuses new work, and drops all tasks, futures in place. The loop must be
    /// entered, so that destructors find it.
    ///
    /// In a forked child of `process` neither futures nor closures are dropped: see
    /// [`abandon`].
    pub(crate) fn end(&self, process: Process) {
        // The loop may be marked asleep, between `prepare_to_park` and a turn.
        self.take_remote();
        // From here on, `schedule` also sends this thread's wakes to the queue, which refuses them
        // after `close`.
        self.late.begin(self.tasks() + self.ready());
        let mut left = self.ready.take_all();
        left.extend(self.queue.close());
        for node in left {
            // SAFETY: taken out of its queue, on the loop's thread.
            unsafe {
                let kind = node.as_ref().kind();
                if process.is_forked() { (kind.leave)(node) } else { (kind.discard)(node) }
            }
        }
        // Each place is visited once. No place is filled any more: a task that a drop spawns gets
        // no place. A task that another task's drop has ended has left its place.
        let places = self.tasks.borrow().capacity();
        for place in 0..places {
            let task = self.tasks.borrow().get(place).copied();
            match task {
                // SAFETY: a task in the list is alive and ours. Both take it off the list.
                Some(header) if process.is_forked() => unsafe { abandon(header, self) },
                // SAFETY: as above.
                Some(header) => unsafe { header::cancel(header) },
                None => {}
            }
        }
        debug_assert_eq!(self.tasks(), 0, "a task has no place while its loop ends");
        self.drop_late(process);
    }

    /// Drops the futures that were spawned since the end began. `false`: there was none. The loop
    /// must be entered.
    pub(crate) fn drop_late(&self, process: Process) -> bool {
        self.late.drop_all(process)
    }
}

/// Ends a task at the end of an inherited loop, in a forked child. Its future is never dropped: it
/// may own a lock that a thread of the parent held at the fork. So it stays where it is pinned,
/// because the loop's reference is never given up.
///
/// # Safety
/// The task is one of `local`'s, and this is the loop's thread.
unsafe fn abandon(header: NonNull<Header>, local: &Local) {
    // SAFETY: the loop's reference keeps the task alive, for ever.
    let header = unsafe { header.as_ref() };
    header.state.seize();
    local.disown(header.place.get());
    if header.state.finish() {
        local.wake_joiner(header);
    }
}

/// Queues `node` for its loop: on the loop's own thread in its ready list, otherwise in its queue.
///
/// # Errors
/// The node comes back when the loop has ended.
///
/// # Safety
/// The same as for [`ReadyQueue::push`](crate::ready_queue::ReadyQueue::push), and the node is the
/// first field of a [`Queued`].
#[inline]
pub(super) unsafe fn schedule(
    queue: &Arc<Queue>,
    node: NonNull<Node>,
) -> Result<(), NonNull<Node>> {
    // SAFETY: the pointer is set only while its `Entered` borrows the `Local`.
    let current = unsafe { CURRENT.get().as_ref() };
    match current.filter(|local| Arc::ptr_eq(&local.queue, queue) && !local.late.has_begun()) {
        Some(local) => {
            local.ready.push(node);
            Ok(())
        }
        // SAFETY: the caller's promise.
        None => unsafe { push_remote(queue, node) },
    }
}

/// # Safety
/// The same as for [`schedule`].
#[inline(never)]
unsafe fn push_remote(queue: &Queue, node: NonNull<Node>) -> Result<(), NonNull<Node>> {
    #[cfg(feature = "tokio")]
    if push_hosted(queue, node) {
        return Ok(());
    }
    // A push that finds the queue empty is the oldest of its batch, so it stamps its node with the
    // time.
    if !queue.is_pending() {
        // SAFETY: the caller's promise.
        unsafe { Queued::stamp(node) };
    }
    // SAFETY: the caller's promise.
    unsafe { queue.push(node) }
}

/// Queues `node` without a ring if its loop is this thread's, has a host, and sleeps. `false`: that
/// is not so, and the node is still the caller's.
#[cfg(feature = "tokio")]
fn push_hosted(queue: &Queue, node: NonNull<Node>) -> bool {
    // SAFETY: the pointer is set only while its `InHost` borrows the `Local`.
    let Some(local) = (unsafe { HOSTED.get().as_ref() }) else { return false };
    if !ptr::eq(&raw const *local.queue, queue) || !local.is_asleep() || local.late.has_begun() {
        return false;
    }
    local.push(node);
    local.wake_host();
    true
}

#[cfg(feature = "tokio")]
impl Local {
    /// Called when a host's root future is being polled. The guard ends that.
    pub(crate) fn enter_host(&self) -> InHost<'_> {
        InHost { local: self, outer: HOSTED.replace(self), ran: self.host.set_runs(true) }
    }

    /// Stores the waker that wakes the root future.
    #[inline]
    pub(crate) fn know_host(&self, waker: &Waker) {
        self.host.know(waker);
    }

    /// Has the root future polled again. `false`: no host runs this loop.
    pub(crate) fn wake_host(&self) -> bool {
        self.host.wake()
    }
}

/// A host runs the loop until this guard is dropped. Guards must be dropped in reverse order.
#[cfg(feature = "tokio")]
pub(crate) struct InHost<'a> {
    local: &'a Local,
    outer: *const Local,
    ran: bool,
}

#[cfg(feature = "tokio")]
impl Drop for InHost<'_> {
    fn drop(&mut self) {
        HOSTED.set(self.outer);
        self.local.host.set_runs(self.ran);
    }
}

/// Like [`schedule`], for nodes that must run in the order in which their thread sent them. On the
/// loop's own thread such a node runs after what the same thread has sent from outside a turn,
/// which is still in the queue.
///
/// # Errors
/// The same as for [`schedule`].
///
/// # Safety
/// The same as for [`schedule`].
pub(super) unsafe fn schedule_in_order(
    queue: &Arc<Queue>,
    node: NonNull<Node>,
) -> Result<(), NonNull<Node>> {
    // SAFETY: as in `schedule`.
    let current = unsafe { CURRENT.get().as_ref() };
    if let Some(local) =
        current.filter(|local| Arc::ptr_eq(&local.queue, queue) && !local.late.has_begun())
    {
        local.accept(queue.drain());
    }
    // SAFETY: the caller's promise.
    unsafe { schedule(queue, node) }
}

/// How many tasks of the loop that runs on this thread are ready to run.
pub(crate) fn ready_here() -> usize {
    with_current_if_any(|local| local.map_or(0, Local::ready))
}

/// Counts an operation that the cooperative budget has put off, on the loop that runs on this
/// thread.
#[cold]
pub(super) fn count_forced_yield() {
    with_current_if_any(|local| local.into_iter().for_each(|it| it.counters.forced_yields.add(1)));
}

/// Counts a panic that was contained, on the loop that runs on this thread.
#[cold]
fn count_panic() {
    with_current_if_any(|local| local.into_iter().for_each(|it| it.counters.panics.add(1)));
}

/// Calls `f` with the loop that runs on this thread, if there is one.
#[inline]
pub(super) fn with_current_if_any<R>(f: impl FnOnce(Option<&Local>) -> R) -> R {
    // SAFETY: as in `schedule`.
    f(unsafe { CURRENT.get().as_ref() })
}

/// The address of the loop that runs a turn on this thread, or 0.
#[inline]
pub(super) fn address_here() -> usize {
    CURRENT.get().addr()
}

/// Does a loop run a turn on this thread? This is one load.
#[inline]
pub(super) fn is_within_turn() -> bool {
    !CURRENT.get().is_null()
}

/// Calls `f` with the loop that runs on this thread.
#[inline]
pub(super) fn with_current<R>(f: impl FnOnce(&Local) -> R) -> R {
    with_current_if_any(|local| f(local.expect("tasks run within a turn of their loop")))
}

/// The loop is the thread's loop until this guard is dropped. Guards must be dropped in reverse
/// order.
pub(crate) struct Entered<'a> {
    outer: *const Local,
    _local: PhantomData<&'a Local>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.outer);
    }
}
