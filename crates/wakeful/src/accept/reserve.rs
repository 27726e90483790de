//! A descriptor for the time when none is left.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};

use crate::sys::limits::explain_call;

/// A descriptor that is kept for the time when none is left. It is not that of a file, because in a
/// chroot there may be no file to open, not even `/dev/null`.
#[derive(Debug)]
pub(super) struct Reserve(RefCell<Option<OwnedFd>>);

impl Reserve {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(RefCell::new(Some(Self::open()?))))
    }

    fn open() -> io::Result<OwnedFd> {
        eventfd(0, EventfdFlags::CLOEXEC).map_err(explain_call("eventfd2"))
    }

    /// Closes the reserved descriptor, for a caller that needs one for longer. `false`: there was
    /// none.
    pub(super) fn give_up(&self) -> bool {
        self.0.take().is_some()
    }

    /// Gives the descriptor up while `f` runs. `None`: there is none, because other code took it
    /// the last time.
    pub(super) fn lend<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let lent = self.0.take().or_else(|| Self::open().ok());
        let result = lent.is_some().then(|| {
            drop(lent);
            f()
        });
        self.0.replace(Self::open().ok());
        result
    }
}
