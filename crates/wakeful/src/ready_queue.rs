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
//! Whoever finds ASLEEP in the word that its swap replaced rings the bell, *after* the swap, unless
//! a ring of the same sleep is *complete*. Not only the first one rings: if it stalls before its
//! ring, nobody behind it is late.
//!
//! # Invariants
//! 1. ASLEEP is set only by `try_sleep`, on an empty queue without bits, and cleared only by
//!    `drain` and `close`.
//! 2. The loop waits (which is more than to ask the kernel and come back at once) only after a
//!    `try_sleep` that succeeded, without a drain in between, and drains before it runs anybody's
//!    code.
//! 3. A ring ends the loop's present wait, or its next one. (An eventfd, edge-triggered in the
//!    epoll that the loop waits on: each write is an edge, and one that came before the wait is
//!    reported by it.)
//! 4. CLOSED stays.
//! 5. After a `try_sleep` that succeeded, the next one comes behind a drain: a number later than a
//!    sleep's own says that this sleep is over.
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
//!   its ring, and then W lasts until it goes on: W is late by *its own* pusher's pause, never by
//!   another's. If W ended by itself meanwhile (a time-out, a signal, another ring), the drain
//!   behind W takes P's node, and P's ring comes later: it may end some other wait in which nothing
//!   has come. So a spurious end is possible, a missing one is not.
//! * **S, drain, P.** The loop woke in between, and P precedes the next sleep: the first two cases.
//!
//! A wake of a *task* that is scheduled already is not pushed again. It completes with the wake
//! that scheduled the task (`task/state.rs`): if that one stands between the state's change and the
//! swap, so does this one. A push that meets CLOSED gives its node back; one that precedes the
//! close is in the list that the close takes. So at the loop's end, too, each node is somebody's.
//!
//! Conversely **nobody rings while the loop is awake**: ASLEEP is not set between a drain and the
//! next `try_sleep`.
//!
//! # Which ring may be left out
//! Between the first ring and the moment when the loop gets its CPU thousands may push, and a
//! system call for each would be the slowest thing here. So sleeps are numbered, in a second word:
//! `try_sleep` publishes the next number *before* it tries for ASLEEP. Who has to ring reads the
//! number n, rings, and then marks n; who finds n marked already does not ring. Each thread
//! therefore rings once in a sleep at most, and one thread alone exactly once; but a signal handler
//! that wakes the loop between its own thread's ring and mark rings again.
//! * P's push met the sleep S with number s, and P reads n. By the swap that it met, n is s or
//!   later. If it is later, a drain ended S (5) and took P's node: P owes no ring.
//! * n = s, marked: the ring behind that mark was made after s was published, so after the wait in
//!   front of S had ended (2), and it ends W by (3). The drain behind W comes after P's swap, which
//!   found ASLEEP, and takes P's node.
//! * n = s, not marked: P rings itself, whoever else is about to. The mark is a swap from n to
//!   marked n: one that comes late meets another number, and fails.
//!
//! Numbers come again after 2^63 sleeps (2^31 where words have 32 bits): a mark that is late by
//! exactly so many would mark a sleep that nobody rang.
//!
//! What this adds to (2): a wait that heard the bell is followed by a drain, never by a second wait
//! in the same sleep.
//!
//! # Why these memory orders are enough
//! * That no wake is lost uses one word's modification order only, which every order has: no fence
//!   stands between "I sleep" and "is there work?", which is where such protocols usually fail.
//! * The number of the sleep is a second location. `try_sleep`'s swap is `Release` and those of
//!   pushes and wakes `Acquire`, so that who met the sleep reads its number or a later one. The
//!   number itself is published with `Release` and read with `Acquire`: a ring for it comes after
//!   the wait before it. The mark is `Release`: its ring came first.
//! * A push is `Release` and a drain or close `Acquire`: who takes a node sees what its pusher
//!   wrote, the link included. A drain reads the *last* push's word, and the earlier pushes' too,
//!   because an unbroken chain of read-modify-writes continues each one's release sequence. A wake
//!   is `Release` for the same reason: what it announces (a stop, a flag) is seen behind the drain
//!   that takes WOKEN, or a node pushed onto it.
//! * The loads in front of a compare-and-swap, and its failure, are relaxed: they guess, the swap
//!   decides. A CLOSED that they see is true for ever, and one that they do not see yet makes the
//!   swap fail.
//! * `drain` looks before it swaps, relaxed: after its own `try_sleep` the loop cannot read an
//!   older word than the one it wrote; awake, an old zero only means that the next `try_sleep`
//!   fails. `is_pending` is a hint of the same kind, and a drain follows it.
//! * A refused push reads CLOSED relaxed: it learns nothing but that.
//!
//! # Other properties
//! * FIFO per producer: its later node is nearer to the head, and the drain turns the list round.
//! * No ABA: nodes leave only all at once, so a swap that succeeds against a recycled address still
//!   links the true rest. A pusher follows no link.
//! * After its swap the node is the loop's and may be gone. A pusher keeps by itself what it still
//!   needs: the queue, for the ring.
//!
//! The models in `loom_tests` check each case, the mutants of `proof/mutants/` that a test fails
//! for each line that could be left out, and `tests/stress.rs` the whole under random load.

use std::fmt;
use std::hint;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::pause::{self, Point};
use crate::priority::Priority;
use crate::sys::sync::{AtomicPtr, AtomicUsize, UnsafeCell};

/// The loop sleeps, or is about to: a pusher that finds this bit rings the bell, unless a ring of
/// this sleep is complete.
const ASLEEP: usize = 0b001;
/// Somebody asked for a turn without work of their own ([`ReadyQueue::wake`]).
const WOKEN: usize = 0b010;
/// The loop is gone: a push is refused.
const CLOSED: usize = 0b100;
const BITS: usize = ASLEEP | WOKEN | CLOSED;

/// In the number of a sleep: a ring of this sleep is complete. Numbers count by two.
const RUNG: usize = 1;

/// How long a pusher that met another one leaves the head alone: about a microsecond, a tenth of
/// what a ring costs it.
const PAUSES: u32 = 32;

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
    /// Which of the loop's lists takes it. The queue itself has no classes: it keeps the order of
    /// the pushes.
    pub(crate) priority: Priority,
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

    /// The link. Whoever has the node (its queue's loop, or the thread that is pushing it) may use
    /// it.
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
    /// The number of the loop's present or last sleep, and [`RUNG`].
    sleep: AtomicUsize,
    bell: B,
}

// SAFETY: nodes are handed from thread to thread; `push` demands that they may be.
unsafe impl<B: Send> Send for ReadyQueue<B> {}
// SAFETY: as above; the head is atomic.
unsafe impl<B: Sync> Sync for ReadyQueue<B> {}

impl<B: Bell> ReadyQueue<B> {
    pub(crate) fn new(bell: B) -> Self {
        // Near its end, so that every run crosses it.
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

    /// [`push`](Self::push), which calls `at` at each of its points, so that a test or an
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
            // Release: the loop that takes the node sees what was written before the push. Acquire:
            // the number of the sleep that this swap may find.
            match self.head.compare_exchange_weak(head, new, AcqRel, Relaxed) {
                Ok(_) => {
                    at(Point::Pushed);
                    if bits & ASLEEP != 0 {
                        self.ring();
                    }
                    return Ok(());
                }
                // The loop has taken what there was.
                Err(now) if now.addr() & !BITS == 0 => head = now,
                Err(_) => {
                    // Others push too. Who tries again at once takes the head's cache line from one
                    // that would have pushed many times with it: of eight producers on two CPUs,
                    // half as much gets through.
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
            // Release: the loop that takes the bit sees what the waker wrote before, a stop for
            // one. Acquire: as in `push_at`.
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

    /// Rings for a swap that found ASLEEP, unless a ring of the same sleep is complete.
    /// Async-signal-safe.
    #[cold]
    fn ring(&self) {
        // This sleep's number, or a later one. Acquire: our ring comes after the number.
        let number = self.sleep.load(Acquire);
        if number & RUNG == 0 {
            self.bell.ring();
            // Fails if another one has marked it, or if the sleep is over.
            let _ = self.sleep.compare_exchange(number, number | RUNG, Release, Relaxed);
        }
    }

    /// The loop says that it is about to sleep. `false`: there is work, stay awake. From `true`
    /// until the next [`drain`](Self::drain) a pusher rings, unless a ring of this sleep is
    /// complete. The next `try_sleep` comes behind that drain, and so does whatever follows a wait
    /// that heard the bell.
    pub(crate) fn try_sleep(&self) -> bool {
        let asleep = ptr::without_provenance_mut(ASLEEP);
        // The next number, not marked. Release: a ring for it comes after the last wait. A store
        // would do, since a mark cannot follow it; but loom does not know that a swap reads the
        // value in front of its own.
        let next = (self.sleep.load(Relaxed) | RUNG).wrapping_add(1);
        self.sleep.swap(next, AcqRel);
        // Release: who finds ASLEEP finds this number.
        self.head.compare_exchange(ptr::null_mut(), asleep, Release, Relaxed).is_ok()
    }

    /// Does the loop sleep? It may wake at any time.
    pub(crate) fn is_asleep(&self) -> bool {
        self.head.load(Relaxed).addr() & ASLEEP != 0
    }

    /// Is anything queued, or the loop asked to wake? A load only: for a loop that spins.
    #[inline(always)]
    pub(crate) fn is_pending(&self) -> bool {
        self.head.load(Relaxed).addr() & !ASLEEP != 0
    }

    /// Takes all that was pushed, oldest first. Wait-free in the pushers; linear in what was
    /// pushed. When nothing happened since the last drain this is one load.
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

// Real-time scheduling is nothing that Miri knows.
#[cfg(all(test, not(wakeful_loom), not(miri)))]
mod priority_tests;
