//! The possible other holders of a listening socket, besides the server that accepts from it.
//!
//! The kernel does not report how many descriptors, in how many processes, refer to a socket. So
//! this records each event that may have created a second one: a descriptor that user code has
//! seen, another `SharedListener` of the same socket, a fork. It cannot record another process that
//! takes the descriptor (`pidfd_getfd(2)`), nor a child of a bare `clone(2)`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys::before_fork::{self, ForkCount};
use crate::sys::fork_check::Process;

/// The record of one socket. Each `SharedListener` of the socket has a clone, and so has the
/// server.
#[derive(Debug, Clone)]
pub(super) struct Holders(Arc<State>);

#[derive(Debug)]
struct State {
    /// The number of forks when the socket was bound.
    forks: ForkCount,
    /// User code had the descriptor, and may have duplicated it.
    is_lent: AtomicBool,
}

impl Holders {
    /// Makes the record of a socket that this process is about to bind.
    pub(super) fn of_new_socket() -> io::Result<Self> {
        let forks = Process::fork_count()?;
        Ok(Self(Arc::new(State { forks, is_lent: AtomicBool::new(false) })))
    }

    /// Notes that user code gets the descriptor.
    pub(super) fn lend(&self) {
        self.0.is_lent.store(true, Ordering::Release);
    }

    /// Is the caller's clone the only one, and has user code never had the descriptor?
    fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && !self.0.is_lent.load(Ordering::Acquire)
    }

    /// Calls `change` and returns `true`, unless somebody else may hold the socket. `undo` is
    /// called before this process forks. Both functions may only make system calls.
    pub(super) fn change_if_alone(
        &self,
        socket: &Arc<OwnedFd>,
        change: impl FnOnce(&OwnedFd) -> io::Result<()>,
        undo: fn(&OwnedFd),
    ) -> io::Result<bool> {
        if self.is_alone() {
            before_fork::change_until_fork(self.0.forks, socket, change, undo)
        } else {
            Ok(false)
        }
    }
}
