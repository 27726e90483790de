//! The ready queue: many producers, one loop, and the loop's sleep state in the same word.
//!
//! The queue is a stack of intrusive nodes. Its head is one atomic word: a pointer to the newest
//! node, and three bits. "Is there work?" and "is the loop asleep?" are one word, so they cannot
//! disagree, and no wake falls between them.
//!
//! | operation | by | the head, in one read-modify-write |
//! |---|---|---|
//! | [`push`](ReadyQueue::push) | any thread, lock-free | (list, bits) → (node + list, bits); refused if CLOSED |
//! | [`wake`](ReadyQueue::wake) | any thread, a signal handler | (list, bits) → (list, bits + WOKEN); nothing if CLOSED |
//! | [`try_sleep`](ReadyQueue::try_sleep) | the loop | (empty, none) → (empty, ASLEEP); anything else: no, there is work |
//! | [`drain`](ReadyQueue::drain) | the loop, wait-free | (list, bits) → (empty, none), and the list is the loop's |
//! | [`close`](ReadyQueue::close) | the loop, once, at its end | (list, bits) → (empty, CLOSED), and the list is the loop's |
//!
//! A pusher that finds ASLEEP in the word that its swap replaced rings the bell, *after* the swap,
//! unless a ring of the same sleep is *complete*. Later pushers ring, too, and not only the first
//! one: if the first one stalls before its ring, the others are not late.
//!
//! # Invariants
//! 1. ASLEEP is set only by `try_sleep`, on an empty queue without bits, and cleared only by
//!    `drain` and `close`.
//! 2. The loop waits (which is more than asking the kernel without a wait) only after a `try_sleep`
//!    that succeeded, without a drain in between, and drains before it runs user code.
//! 3. A ring ends the loop's present wait, or its next one. (An eventfd, edge-triggered in the
//!    epoll that the loop waits on: each write is an edge, and one that came before the wait is
//!    reported by it.)
//! 4. CLOSED stays.
//! 5. After a `try_sleep` that succeeded, the next one comes only after a drain. So a number later
//!    than a sleep's own shows that this sleep is over.
//!
//! # Why no wake is lost
//! Let P be a push (or a wake) that was accepted, and W a wait of the loop that follows P's swap or
//! is under way when it happens. The claim: W ends. W has a sleep S before it (2). P and S are
//! read-modify-writes of one word, so one precedes the other in its modification order, and so does
//! every drain.
//! * **P, S, no drain between.** S finds a node or WOKEN, so it fails: there is no W.
//! * **P, drain, S.** The drain took what P brought, before S: W is not late for P.
//! * **S, P, no drain between.** By (1) P's swap finds ASLEEP, so P rings (or need not, see below).
//!   If it rings before W or during it, W ends by (3). A pusher may be stopped between its swap and
//!   its ring. Then W lasts until the pusher continues: W is late by *its own* pusher's pause,
//!   never by another's. If W ended by itself meanwhile (a timeout, a signal, another ring), the
//!   drain after W takes P's node, and P's ring comes later. It may end another wait in which
//!   nothing has come. So a spurious end is possible, but a missing one is not.
//! * **S, drain, P.** The loop woke in between, and P precedes the next sleep: the first two cases.
//!
//! A wake of a *task* that is scheduled already is not pushed again. It completes with the wake
//! that scheduled the task (`task/state.rs`): if that wake is stopped between the state's change
//! and the swap, this one is late, too. A push that meets CLOSED gives its node back. The node of a
//! push that precedes the close is in the list that the close takes. So each node has an owner at
//! the loop's end, too.
//!
//! Conversely **nobody rings while the loop is awake**: ASLEEP is not set between a drain and the
//! next `try_sleep`.
//!
//! # Which ring may be left out
//! Thousands may push between the first ring and the moment when the loop gets its CPU, and a
//! system call for each would be the slowest thing here. So sleeps are numbered, in a second word:
//! `try_sleep` publishes the next number *before* it tries for ASLEEP. A pusher that has to ring
//! reads the number n, rings, and then marks n. If it finds n marked already, it does not ring.
//! Therefore each thread rings at most once per sleep, and a single pushing thread exactly once.
//! The exception is a signal handler that wakes the loop between its own thread's ring and mark: it
//! rings again.
//! * P's push met the sleep S with number s, and P reads n. By the swap that it met, n is s or
//!   later. If it is later, a drain ended S (5) and took P's node: P owes no ring.
//! * n = s, marked: the ring that preceded the mark was made after s was published, so after the
//!   wait before S had ended (2), and it ends W by (3). The drain after W comes after P's swap,
//!   which found ASLEEP, and takes P's node.
//! * n = s, not marked: P rings itself, whoever else is about to. The mark is a swap from n to
//!   marked n: one that comes late meets another number, and fails.
//!
//! Numbers repeat after 2^63 sleeps (2^31 where words have 32 bits). A mark that is late by exactly
//! this many sleeps would mark a sleep for which nobody rang.
//!
//! What this adds to (2): a wait that heard the bell is followed by a drain, never by a second wait
//! in the same sleep.
//!
//! # Why these memory orders are enough
//! * The proof that no wake is lost uses only one word's modification order, which exists with
//!   every memory order. There is no fence between "I sleep" and "is there work?", which is where
//!   such protocols usually fail.
//! * The number of the sleep is a second location. `try_sleep`'s swap is `Release`, and those of
//!   pushes and wakes are `Acquire`, so that a pusher that met the sleep reads its number or a
//!   later one. The number itself is published with `Release` and read with `Acquire`: a ring for
//!   it comes after the wait before it. The mark is `Release`: its ring came first.
//! * A push is `Release` and a drain or close `Acquire`, so the thread that takes a node sees what
//!   its pusher wrote, including the link. A drain reads the *last* push's word, and the earlier
//!   pushes' too, because an unbroken chain of read-modify-writes continues each one's release
//!   sequence. A wake is `Release` for the same reason: what it announces (a stop, a flag) is
//!   visible after the drain that takes WOKEN, or a node that was pushed after it.
//! * The loads before a compare-and-swap, and its failure, are relaxed, because they only guess,
//!   and the swap decides. A CLOSED that they see is true for ever. A CLOSED that they do not see
//!   yet makes the swap fail.
//! * `drain` loads the head before it swaps, relaxed. After its own `try_sleep` the loop cannot
//!   read an older word than the one that it wrote. While the loop is awake, an old zero only means
//!   that the next `try_sleep` fails. `is_pending` is a hint of the same kind, and a drain follows
//!   it.
//! * A refused push reads CLOSED relaxed, because it learns nothing else from the word.
//!
//! # Other properties
//! * FIFO per producer: a producer's later node is nearer to the head, and the drain reverses the
//!   list.
//! * No ABA problem: nodes leave the queue only all at once, so a swap that succeeds with a
//!   recycled address still links the true rest. A pusher follows no link.
//! * After the swap the node belongs to the loop, and may be gone. A pusher itself keeps what it
//!   still needs for the ring: the queue.
//!
//! The models in `loom_tests` check each case. The mutants of `proof/mutants/` check that a test
//! fails for each line that could be left out. `tests/stress.rs` checks the whole queue under
//! random load.

use std::fmt;
use std::hint;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::pause::{self, Point};
use crate::priority::Priority;
use crate::sys::sync::{AtomicPtr, AtomicUsize, UnsafeCell};

/// The loop sleeps, or is about to sleep. A pusher that finds this bit rings the bell, unless a
/// ring of this sleep is complete.
const ASLEEP: usize = 0b001;
/// A thread has asked for a turn without pushing work ([`ReadyQueue::wake`]).
const WOKEN: usize = 0b010;
/// The loop is gone: a push is refused.
const CLOSED: usize = 0b100;
const BITS: usize = ASLEEP | WOKEN | CLOSED;

/// The bit in the number of a sleep that says that a ring of this sleep is complete. Numbers count
/// by two.
const RUNG: usize = 1;

/// How long a pusher that collided with another one leaves the head alone: about a microsecond, a
/// tenth of the cost of a ring.
const PAUSES: u32 = 32;

/// Wakes a sleeping loop. In production it is an eventfd, in the models a condition variable.
pub(crate) trait Bell {
    /// Makes the loop's present wait end, or, if it has not begun yet, its next one.
    fn ring(&self);
}

/// The first field of every kind of work that can be queued: tasks, closures.
///
/// A node is in at most one queue at a time. The code that queues it guarantees that.
#[repr(C, align(8))]
pub(crate) struct Node {
    next: UnsafeCell<*mut Node>,
    kind: &'static Kind,
}

/// What the loop does with a node of this kind after it has taken it.
pub(crate) struct Kind {
    /// Which of the loop's lists takes the node. The queue itself has no classes and keeps the
    /// order of the pushes.
    pub(crate) priority: Priority,
    /// Runs the work. Called on the loop's thread, at most once for each time it was queued.
    pub(crate) run: unsafe fn(NonNull<Node>),
    /// Drops the work without running it. Called on the loop's thread, at the loop's end.
    pub(crate) discard: unsafe fn(NonNull<Node>),
    /// Leaves the work undropped for ever. Called instead of `discard` in a forked child.
    pub(crate) leave: unsafe fn(NonNull<Node>),
    /// Must the work run in the order in which it was queued? The debug mode that shuffles work
    /// asks this.
    #[cfg_attr(not(debug_assertions), allow(dead_code))]
    pub(crate) order: unsafe fn(NonNull<Node>) -> Order,
}

/// Whether the order of queueing is promised for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// In the order of queueing. This is for closures, and for tasks that have not begun.
    AsQueued,
    /// In any order within a turn. This is for tasks that were woken.
    Any,
}

impl Node {
    pub(crate) fn new(kind: &'static Kind) -> Self {
        Self { next: UnsafeCell::new(ptr::null_mut()), kind }
    }

    pub(crate) fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// Reads the link. Only the owner of the node may use it: the queue's loop, or the thread that
    /// is pushing the node.
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
    /// The same as for [`Node::next`].
    #[inline(always)]
    pub(crate) unsafe fn set_next(node: NonNull<Node>, to: *mut Node) {
        // SAFETY: the caller's promise.
        unsafe { node.as_ref() }.next.with_mut(|next| unsafe { *next = to });
    }
}

/// See the module's documentation.
pub(crate) struct ReadyQueue<B> {
    head: AtomicPtr<Node>,
    /// The number of the loop's present or last sleep, with the bit [`RUNG`].
    sleep: AtomicUsize,
    bell: B,
}

// SAFETY: nodes are handed from thread to thread; `push` demands that they may be.
unsafe impl<B: Send> Send for ReadyQueue<B> {}
// SAFETY: as above; the head is atomic.
unsafe impl<B: Sync> Sync for ReadyQueue<B> {}

impl<B: Bell> ReadyQueue<B> {
    pub(crate) fn new(bell: B) -> Self {
        // The number starts near its end, so that it wraps around in every run.
        let sleep = AtomicUsize::new(usize::MAX);
        Self { head: AtomicPtr::new(ptr::null_mut()), sleep, bell }
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

    /// Like [`push`](Self::push), but calls `at` at each of its points, so that a test or an
    /// experiment can stop a producer there. With an `at` that does nothing it is the same code.
    ///
    /// # Errors
    /// The same as for [`push`](Self::push).
    ///
    /// # Safety
    /// The same as for [`push`](Self::push).
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
            // Release: the loop that takes the node must see what was written before the push.
            // Acquire: this thread must see the number of the sleep that this swap may find.
            match self.head.compare_exchange_weak(head, new, AcqRel, Relaxed) {
                Ok(_) => {
                    at(Point::Pushed);
                    if bits & ASLEEP != 0 {
                        self.ring();
                    }
                    return Ok(());
                }
                // The loop has taken all nodes meanwhile.
                Err(now) if now.addr() & !BITS == 0 => head = now,
                Err(_) => {
                    // Other threads push, too. A thread that tries again at once takes the head's
                    // cache line from one that would have pushed many times with it. With eight
                    // producers on two CPUs this halves the throughput.
                    (0..PAUSES).for_each(|_| hint::spin_loop());
                    head = self.head.load(Relaxed);
                }
            }
        }
    }

    /// Makes the loop take a turn soon, without work. Async-signal-safe: no allocation, no lock,
    /// and errno stays as it was.
    pub(crate) fn wake(&self) {
        let mut head = self.head.load(Relaxed);
        loop {
            if head.addr() & CLOSED != 0 {
                return;
            }
            let new = head.map_addr(|addr| addr | WOKEN);
            // Release: the loop that takes the bit must see what the waker wrote before, for
            // example a stop. Acquire: for the same reason as in `push_at`.
            match self.head.compare_exchange_weak(head, new, AcqRel, Relaxed) {
                Ok(_) => {
                    if head.addr() & ASLEEP != 0 {
                        self.ring();
                    }
                    return;
                }
                Err(now) => head = now,
            }
        }
    }

    /// Rings the bell after a swap that found ASLEEP, unless a ring of the same sleep is complete.
    /// Async-signal-safe.
    #[cold]
    fn ring(&self) {
        // The number is this sleep's, or a later one. Acquire: the ring must come after the number.
        let number = self.sleep.load(Acquire);
        if number & RUNG == 0 {
            self.bell.ring();
            // This fails if another thread has marked the number, or if the sleep is over.
            let _ = self.sleep.compare_exchange(number, number | RUNG, Release, Relaxed);
        }
    }

    /// Called when the loop is about to sleep. `false`: there is work, so the loop must stay awake.
    /// After `true`, a pusher rings until the next [`drain`](Self::drain), unless a ring of this
    /// sleep is complete. The loop must drain before the next `try_sleep`, and before anything else
    /// that follows a wait that heard the bell.
    pub(crate) fn try_sleep(&self) -> bool {
        let asleep = ptr::without_provenance_mut(ASLEEP);
        // The next number, not marked. Release: a ring for it must come after the last wait. A
        // store would be enough, because a mark cannot follow it. But loom does not know that a
        // swap reads the value that precedes its own.
        let next = (self.sleep.load(Relaxed) | RUNG).wrapping_add(1);
        self.sleep.swap(next, AcqRel);
        // Release: a pusher that finds ASLEEP must find this number.
        self.head.compare_exchange(ptr::null_mut(), asleep, Release, Relaxed).is_ok()
    }

    /// Does the loop sleep? It may wake at any time.
    pub(crate) fn is_asleep(&self) -> bool {
        self.head.load(Relaxed).addr() & ASLEEP != 0
    }

    /// Is anything queued, or was the loop asked to wake? This is only a load, for a loop that
    /// spins.
    #[inline(always)]
    pub(crate) fn is_pending(&self) -> bool {
        self.head.load(Relaxed).addr() & !ASLEEP != 0
    }

    /// Takes everything that was pushed, oldest first. Never waits for a pusher, and takes time in
    /// proportion to what was pushed. If nothing happened since the last drain, this is one load.
    #[inline]
    pub(crate) fn drain(&self) -> Drained {
        if self.head.load(Relaxed).is_null() {
            return Drained { first: ptr::null_mut() };
        }
        // Acquire: pairs with the pushes of these nodes, and with the wakes.
        Drained::reversed(self.head.swap(ptr::null_mut(), Acquire))
    }

    /// Ends the queue: takes what is there, and refuses every later push.
    pub(crate) fn close(&self) -> Drained {
        let closed = ptr::without_provenance_mut(CLOSED);
        // Acquire: as in `drain`. A push that this refuses learns from the word only that it is
        // CLOSED.
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

/// Nodes that have left the queue, oldest first. They belong to the owner of this value.
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

// Miri does not support real-time scheduling.
#[cfg(all(test, not(wakeful_loom), not(miri)))]
mod priority_tests;
