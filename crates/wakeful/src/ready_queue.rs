//! The ready queue: many producers, one loop, and the loop's sleep state in the same word.
//!
//! The queue is a stack of intrusive nodes. Its head is one atomic word: a pointer to the newest
//! node, and three bits. Because "is there work?" and "is the loop asleep?" are one word, they
//! cannot disagree, and no wake can fall between them:
//!
//! * **Push** (any thread, lock-free): link the node in front of the head and compare-and-swap,
//!   keeping the bits. A pusher whose swap saw [`ASLEEP`] rings the bell. *Every* pusher that saw it
//!   rings, not only the first: if the first stalls before its ring, nobody behind it is late.
//! * **Sleep** (the loop): compare-and-swap from exactly zero to [`ASLEEP`]. If that fails there is
//!   work, and the loop does not sleep.
//! * **Drain** (the loop, wait-free): swap the head for zero, reverse the list. The swap takes the
//!   work and the bit together.
//!
//! # Why no wake is lost
//! Take a push P and a sleep S of the same loop. Both are read-modify-writes of the head, so one
//! comes first in the head's modification order.
//! If P comes first and no drain lies between, S finds a non-zero head, fails, and the loop stays
//! awake. If a drain lies between, the node was taken.
//! If S comes first and no drain lies between, P reads the bit that S set (only a drain or a close
//! clears it) and rings; the bell is level-like (an eventfd registered edge-triggered in the epoll
//! that the loop waits on: a write before the wait is not forgotten), so the wait ends.
//! If a drain lies between S and P, the loop is awake when P happens, and meets P's node in its next
//! drain or in its next, failing, S. There is no fourth case. The loom tests run the
//! interleavings of one, two and three producers.
//!
//! # Other properties
//! * FIFO per producer: a producer's later node is nearer to the head; the reversal turns that round.
//! * No ABA: nodes leave the stack only all at once, so a compare-and-swap that succeeds against a
//!   recycled address still links a head that is the true head.
//! * After the swap the node belongs to the loop and may be gone. A pusher must keep alive, by itself,
//!   what it needs afterwards: the queue, for the ring.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::pause::{self, Point};
use crate::sync::{AtomicPtr, UnsafeCell};

/// The loop sleeps, or is about to: a pusher that sees this bit rings the bell.
const ASLEEP: usize = 0b001;
/// Somebody asked for a turn without work of their own ([`ReadyQueue::wake`]).
const WOKEN: usize = 0b010;
/// The loop is gone: a push is refused.
const CLOSED: usize = 0b100;
const BITS: usize = ASLEEP | WOKEN | CLOSED;

/// How a sleeping loop is woken: in production an eventfd, in the models a condition variable.
pub(crate) trait Bell {
    /// Makes the loop's present wait end, or, if it has not begun yet, its next one.
    fn ring(&self);
}

/// What every kind of work that can be queued starts with: tasks, closures.
///
/// A node is in at most one queue at a time; who queues it makes sure of that.
#[repr(C, align(8))]
pub(crate) struct Node {
    next: UnsafeCell<*mut Node>,
    kind: &'static Kind,
}

/// What the loop does with a node of some kind once it has taken it.
pub(crate) struct Kind {
    /// Runs the work. Called on the loop's thread, at most once for each time it was queued.
    pub(crate) run: unsafe fn(NonNull<Node>),
    /// Drops the work without running it. Called on the loop's thread, at the loop's end.
    pub(crate) discard: unsafe fn(NonNull<Node>),
    /// Must it run in the order in which it was queued? Asked by the debug mode that shuffles.
    #[cfg_attr(not(debug_assertions), allow(dead_code))]
    pub(crate) order: unsafe fn(NonNull<Node>) -> Order,
}

/// Whether the order of queueing is promised for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Closures, and tasks that have not begun: as they were queued.
    AsQueued,
    /// Tasks that were woken: any order within a turn.
    Any,
}

impl Node {
    pub(crate) fn new(kind: &'static Kind) -> Self {
        Self { next: UnsafeCell::new(ptr::null_mut()), kind }
    }

    pub(crate) fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// The link. Whoever has the node (its queue's loop, or the thread that is pushing it) may use it.
    ///
    /// # Safety
    /// `node` is alive, and no other thread touches its link at the same time.
    #[inline(always)]
    pub(crate) unsafe fn next(node: NonNull<Node>) -> *mut Node {
        // SAFETY: the caller's promise.
        unsafe { node.as_ref() }.next.with(|next| unsafe { *next })
    }

    /// See [`Node::next`].
    ///
    /// # Safety
    /// As for [`Node::next`].
    #[inline(always)]
    pub(crate) unsafe fn set_next(node: NonNull<Node>, to: *mut Node) {
        // SAFETY: the caller's promise.
        unsafe { node.as_ref() }.next.with_mut(|next| unsafe { *next = to });
    }
}

/// See the module's documentation.
pub(crate) struct ReadyQueue<B> {
    head: AtomicPtr<Node>,
    bell: B,
}

// SAFETY: nodes are handed from thread to thread; `push` demands that they may be.
unsafe impl<B: Send> Send for ReadyQueue<B> {}
// SAFETY: as above; the head is atomic.
unsafe impl<B: Sync> Sync for ReadyQueue<B> {}

impl<B: Bell> ReadyQueue<B> {
    pub(crate) fn new(bell: B) -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()), bell }
    }

    /// Queues `node` and wakes the loop if it sleeps.
    ///
    /// # Errors
    /// The node comes back when the loop is gone.
    ///
    /// # Safety
    /// `node` is alive, in no queue, and stays where it is until the loop has taken it; what it
    /// refers to may be used on the loop's thread.
    #[inline]
    pub(crate) unsafe fn push(&self, node: NonNull<Node>) -> Result<(), NonNull<Node>> {
        // SAFETY: the caller's promise.
        unsafe { self.push_at(node, pause::at) }
    }

    /// [`push`](Self::push), which calls `at` at each of its points, so that a test or an experiment can
    /// stop a producer there. With an `at` that does nothing it is the same code.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    #[inline(always)]
    pub(crate) unsafe fn push_at(
        &self,
        node: NonNull<Node>,
        mut at: impl FnMut(Point),
    ) -> Result<(), NonNull<Node>> {
        at(Point::Start);
        let mut head = self.head.load(Relaxed);
        loop {
            let bits = head.addr() & BITS;
            if bits & CLOSED != 0 {
                return Err(node);
            }
            // SAFETY: the node is ours until the swap below succeeds.
            unsafe { Node::set_next(node, head.map_addr(|addr| addr & !BITS)) };
            at(Point::Linked);
            let new = node.as_ptr().map_addr(|addr| addr | bits);
            // Release: the loop that takes the node sees what was written before the push.
            match self.head.compare_exchange_weak(head, new, Release, Relaxed) {
                Ok(_) => {
                    at(Point::Pushed);
                    if bits & ASLEEP != 0 {
                        self.bell.ring();
                    }
                    return Ok(());
                }
                Err(now) => head = now,
            }
        }
    }

    /// Makes the loop take a turn soon, without work. Async-signal-safe: no allocation, no lock, and
    /// errno stays as it was.
    pub(crate) fn wake(&self) {
        let mut head = self.head.load(Relaxed);
        loop {
            if head.addr() & CLOSED != 0 {
                return;
            }
            let new = head.map_addr(|addr| addr | WOKEN);
            // Release: the loop that takes the bit sees what the waker wrote before, a stop for one.
            match self.head.compare_exchange_weak(head, new, Release, Relaxed) {
                Ok(_) => {
                    if head.addr() & ASLEEP != 0 {
                        self.bell.ring();
                    }
                    return;
                }
                Err(now) => head = now,
            }
        }
    }

    /// The loop says that it is about to sleep. `false`: there is work, stay awake. From `true` until
    /// the next [`drain`](Self::drain), pushers ring.
    pub(crate) fn try_sleep(&self) -> bool {
        let asleep = ptr::without_provenance_mut(ASLEEP);
        // Relaxed: it gives nothing on and takes nothing; that it is one word with the list is enough.
        self.head.compare_exchange(ptr::null_mut(), asleep, Relaxed, Relaxed).is_ok()
    }

    /// Is anything queued, or the loop asked to wake? A load only: for a loop that spins.
    #[inline(always)]
    pub(crate) fn is_pending(&self) -> bool {
        self.head.load(Relaxed).addr() & !ASLEEP != 0
    }

    /// Takes all that was pushed, oldest first. Wait-free in the pushers; linear in what was pushed.
    /// When nothing happened since the last drain this is one load.
    #[inline]
    pub(crate) fn drain(&self) -> Drained {
        if self.head.load(Relaxed).is_null() {
            return Drained { first: ptr::null_mut() };
        }
        // Acquire: pairs with the pushes whose nodes these are, and with the wakes.
        Drained::reversed(self.head.swap(ptr::null_mut(), Acquire))
    }

    /// Ends the queue: takes what is there, and refuses every later push.
    pub(crate) fn close(&self) -> Drained {
        let closed = ptr::without_provenance_mut(CLOSED);
        // Acquire: as in `drain`. A push that it refuses learns nothing from it but that.
        Drained::reversed(self.head.swap(closed, Acquire))
    }
}

impl<B> fmt::Debug for ReadyQueue<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.head.load(Relaxed).addr();
        f.debug_struct("ReadyQueue")
            .field("empty", &(head & !BITS == 0))
            .field("asleep", &(head & ASLEEP != 0))
            .field("closed", &(head & CLOSED != 0))
            .finish()
    }
}

/// Nodes that left the queue, oldest first. They belong to whoever holds this.
pub(crate) struct Drained {
    first: *mut Node,
}

impl Drained {
    fn reversed(head: *mut Node) -> Self {
        let mut rest = head.map_addr(|addr| addr & !BITS);
        let mut first = ptr::null_mut();
        while let Some(node) = NonNull::new(rest) {
            // SAFETY: the swap that gave us `head` took every node behind it out of the queue.
            unsafe {
                rest = Node::next(node);
                Node::set_next(node, first);
            }
            first = node.as_ptr();
        }
        Self { first }
    }
}

impl Iterator for Drained {
    type Item = NonNull<Node>;

    #[inline]
    fn next(&mut self) -> Option<NonNull<Node>> {
        let node = NonNull::new(self.first)?;
        // SAFETY: the node is ours and alive until we hand it out.
        self.first = unsafe { Node::next(node) };
        Some(node)
    }
}

#[cfg(all(feature = "internals", not(wakeful_loom)))]
pub(crate) mod bench;

#[cfg(all(test, not(wakeful_loom)))]
mod tests;

#[cfg(all(test, wakeful_loom))]
pub(crate) mod loom_tests;
