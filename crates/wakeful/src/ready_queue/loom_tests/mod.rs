//! The ready queue's interleavings, by model checking.
//!
//! Loom runs each model once for every order of its threads' atomic operations, and for every value
//! that a load may return under its memory order. A bound leaves out orders that need more
//! preemptions. Without a bound all orders are run. Bounds and sizes are the largest that end
//! within some 20 seconds. Run:
//!
//! ```console
//! $ export RUSTFLAGS="--cfg wakeful_loom"
//! $ cargo test -p wakeful-rt --lib --release loom --target-dir target/loom
//! ```
//!
//! The bell and the loop of the models are here. [`delivery`] checks what arrives, [`sleep`] who
//! rings and what a ring does, and [`end`] what becomes of pushes when the loop ends.
//! `task/state/loom_tests.rs` adds the task's state.

#![allow(clippy::arc_with_non_send_sync, reason = "loom's threads are one thread")]

mod delivery;
mod end;
mod sleep;

use super::*;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::{self, JoinHandle, Thread};
// This `Arc` is not loom's. Where every thread is joined, its count orders nothing, and would only
// multiply the interleavings.
use std::sync::Arc;

/// An eventfd in the model: a counter, and one thread that waits for it to be other than zero.
pub(crate) struct ModelBell {
    /// Rings that no wait has heard yet.
    unheard: AtomicUsize,
    /// The number of rings. It is not one of loom's atomics, because it is counted in one step with
    /// `unheard`, and read after the joins.
    rings: std::sync::atomic::AtomicUsize,
    /// Set during a wait, because loom's `unpark` would otherwise end whatever else the thread is
    /// blocked in.
    waiter: std::sync::Mutex<Option<Thread>>,
    /// Each ring reads it, and the drop writes it, so loom reports a ring of a bell that is gone.
    alive: UnsafeCell<bool>,
}

impl ModelBell {
    pub(crate) fn new() -> Self {
        Self {
            unheard: AtomicUsize::new(0),
            rings: std::sync::atomic::AtomicUsize::new(0),
            waiter: std::sync::Mutex::new(None),
            alive: UnsafeCell::new(true),
        }
    }

    /// `epoll_wait`: ends when the bell was rung since the last wait's end, or at
    /// [`time_out`](Self::time_out). A lost wake is a deadlock, which loom reports.
    fn wait(&self) {
        *self.waiter.lock().unwrap() = Some(thread::current());
        while self.unheard.swap(0, Ordering::AcqRel) == 0 {
            thread::park();
        }
        *self.waiter.lock().unwrap() = None;
    }

    /// Ends the present wait, or the next one, without a ring.
    fn time_out(&self) {
        self.unheard.fetch_add(1, Ordering::AcqRel);
        // No loom operation lies between the addition and the unpark, so they are one step.
        if let Some(waiter) = &*self.waiter.lock().unwrap() {
            waiter.unpark();
        }
    }

    /// How often the bell was rung. The number is exact once the ringing threads have been joined.
    fn rings(&self) -> usize {
        self.rings.load(Ordering::Relaxed)
    }
}

impl Bell for ModelBell {
    fn ring(&self) {
        // SAFETY: none needed beyond the model's: loom reports a race with the drop.
        self.alive.with(|alive| assert!(unsafe { *alive }));
        self.rings.fetch_add(1, Ordering::Relaxed);
        self.time_out();
    }
}

impl Drop for ModelBell {
    fn drop(&mut self) {
        // SAFETY: as in `ring`.
        self.alive.with_mut(|alive| unsafe { *alive = false });
    }
}

pub(crate) type ModelQueue = ReadyQueue<ModelBell>;

impl ModelQueue {
    /// See [`ModelBell::wait`].
    pub(crate) fn wait_for_bell(&self) {
        self.bell.wait();
    }
}

#[repr(C)]
struct Numbered {
    node: Node,
    number: usize,
}

static NUMBERED: Kind = Kind {
    priority: Priority::Normal,
    run: discard,
    discard,
    leave: discard,
    order: |_| Order::AsQueued,
};

unsafe fn discard(node: NonNull<Node>) {
    // SAFETY: only `push` makes nodes of this kind.
    drop(unsafe { Box::from_raw(node.cast::<Numbered>().as_ptr()) });
}

/// Pushes a node; `false` when the queue was closed.
fn push(queue: &ModelQueue, number: usize) -> bool {
    let node = Numbered { node: Node::new(&NUMBERED), number };
    let node = NonNull::from(Box::leak(Box::new(node))).cast();
    // SAFETY: a fresh node; freed by `take`, or here when it is refused.
    unsafe { queue.push(node).map_err(|node| discard(node)).is_ok() }
}

fn take(drained: Drained) -> Vec<usize> {
    drained
        .map(|node| {
            // SAFETY: only `push` makes the nodes of these models.
            unsafe { Box::from_raw(node.cast::<Numbered>().as_ptr()) }.number
        })
        .collect()
}

/// Something that must happen in some execution of a model. Otherwise the model shows nothing.
///
/// These are not loom's atomics, because they live across the executions.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<std::sync::atomic::AtomicBool>);

impl Seen {
    pub(crate) fn note(&self, seen: bool) {
        self.0.fetch_or(seen, Ordering::Relaxed);
    }

    pub(crate) fn assert(&self, what: &str) {
        assert!(self.0.load(Ordering::Relaxed), "no execution of this model shows: {what}");
    }
}

/// What the model's loop did.
#[derive(Default)]
struct Log {
    arrived: Vec<usize>,
    /// How many of the nodes that arrived were pushed between the beginning of a sleep and the
    /// drain that ended it.
    pushed_asleep: usize,
    /// How many waits ended without any work.
    idle_wakes: usize,
    sleeps: usize,
}

impl Log {
    /// Runs the loop: drains, and sleeps if nothing came, until `enough` returns `true`.
    fn run(queue: &ModelQueue, enough: impl Fn(&Self) -> bool) -> Self {
        let mut log = Self::default();
        let mut asleep = false;
        loop {
            let drained = take(queue.drain());
            if std::mem::take(&mut asleep) {
                log.pushed_asleep += drained.len();
                log.idle_wakes += usize::from(drained.is_empty());
            }
            let nothing_came = drained.is_empty();
            log.arrived.extend(drained);
            if enough(&log) {
                return log;
            }
            if nothing_came && queue.try_sleep() {
                asleep = true;
                log.sleeps += 1;
                queue.wait_for_bell();
            }
        }
    }
}

/// Runs `model` in every order that needs at most `preemptions`; `None`: in every order.
pub(crate) fn check(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

fn spawn<T: 'static>(
    queue: &Arc<ModelQueue>,
    f: impl FnOnce(&ModelQueue) -> T + 'static,
) -> JoinHandle<T> {
    let queue = queue.clone();
    thread::spawn(move || f(&queue))
}
