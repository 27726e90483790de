//! A lock of another library that a forked child must find free.
//!
//! h2 has a lock for each connection. The connection and its streams are on one loop, but a
//! request's body may be used on any thread. A child that is forked in a handler has only the
//! handler's thread. If another thread held the lock at the fork, the child would wait for it for
//! ever: when the handler returns, or when what it owns is dropped.
//!
//! On the loop's own thread the lock is free whenever that thread forks. So only other threads must
//! hold off forks while they have it.

use super::local;
use crate::sys::fork_check::ProcessMark;
use crate::sys::thread_edges::Edge;

/// The loop that a lock belongs to, and its process.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct LockHome {
    /// The address of the loop, which is only compared. 0: there was none.
    loop_at: usize,
    process: ProcessMark,
}

impl LockHome {
    /// Returns the loop of this thread.
    #[inline]
    #[must_use]
    pub fn here() -> Self {
        Self { loop_at: local::address_here(), process: ProcessMark::now() }
    }

    /// Calls `f`, which takes the lock. Where the loop does not run, forks of other threads wait
    /// until `f` has returned. There `f` must not call the program's code, which might wait for a
    /// fork.
    #[inline]
    pub fn with_lock<R>(self, f: impl FnOnce() -> R) -> R {
        let is_here = self.loop_at != 0 && local::address_here() == self.loop_at;
        if is_here { f() } else { hold_off_forks(f) }
    }

    /// Is this process a fork of the one that has the loop? If the fork was another thread's, the
    /// lock may be locked for ever.
    #[inline]
    #[must_use]
    pub fn is_forked(self) -> bool {
        self.process.is_forked()
    }
}

#[cold]
fn hold_off_forks<R>(f: impl FnOnce() -> R) -> R {
    let _edge = Edge::new();
    f()
}
