//! Threads that are starting or ending, for which a fork waits.
//!
//! The standard library takes a lock in each thread before it calls the thread's closure, and again
//! after the closure has returned (`std/src/sys/pal/unix/stack_overflow`). If a process forks while
//! a thread has that lock, it stays locked in the child, and each thread that the child starts
//! waits for it for ever. So a thread of this crate is counted while it may be in such code, and a
//! fork ([`fork_check`](super::fork_check)) waits until none is counted. A thread that comes to
//! such code during a fork waits for the fork's end.
//!
//! Each side announces itself before it looks at the other one: a thread by [`COUNT`], a fork by
//! the count that [`count_unless_forking`] reads. So at least one of them sees the other. Both
//! waits are bounded, because the program's own `prepare` handlers may wait for a thread that
//! starts one.
//!
//! Threads that the program starts by itself are not counted.
//!
//! A thread is also counted while it holds a lock of another library that a child of another thread
//! would need: see [`LockHome`](crate::task::LockHome).

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::before_fork::{count_unless_forking, is_forking};

/// How many threads are starting or ending.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// One side waits for the other for this number of pauses at most. A thread needs some ten
/// microseconds, and a fork up to some milliseconds.
const MOST_PAUSES: u32 = 20_000;
const PAUSE: Duration = Duration::from_micros(20);

/// One thread is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Edge(());

impl Edge {
    /// Waits while another thread forks.
    pub(crate) fn new() -> Self {
        for _ in 0..MOST_PAUSES {
            COUNT.fetch_add(1, Ordering::SeqCst);
            let edge = Self(());
            if count_unless_forking().is_some() || is_forking() {
                return edge;
            }
            drop(edge);
            thread::sleep(PAUSE);
        }
        COUNT.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // In a child the count may be 0: it has none of its parent's threads.
        let _ =
            COUNT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
    }
}

/// This thread's closure has returned when this is dropped.
#[derive(Debug)]
pub(super) struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        thread_local! {
            /// Destructors of thread-locals run after the standard library has used its lock. This
            /// one is the first of them, because it is registered last.
            static ENDING: Cell<Option<Edge>> = const { Cell::new(None) };
        }
        let _ = ENDING.try_with(|ending| ending.set(Some(Edge::new())));
    }
}

/// Waits until no thread is starting or ending. A fork calls it after it has announced itself.
pub(super) fn wait() {
    for _ in 0..MOST_PAUSES {
        if COUNT.load(Ordering::SeqCst) == 0 {
            return;
        }
        thread::sleep(PAUSE);
    }
}

/// The handler in the child, which has one thread.
pub(super) fn in_child() {
    COUNT.store(0, Ordering::SeqCst);
}
