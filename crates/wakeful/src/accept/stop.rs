//! How the loops of a server learn that it stops.

use std::convert::Infallible;

use async_channel::Sender;

use crate::sys::fork_check::Process;

/// Nothing is ever sent. The loops see the channel close.
///
/// A forked child leaves its copy open. Its loops do not exist, and closing takes a lock that a
/// thread of the parent may have held at the moment of the fork.
#[derive(Debug)]
pub(super) struct Stop {
    sender: Option<Sender<Infallible>>,
    process: Process,
}

impl Stop {
    pub(super) fn new(sender: Sender<Infallible>, process: Process) -> Self {
        Self { sender: Some(sender), process }
    }

    pub(super) fn is_forked(&self) -> bool {
        self.process.is_forked()
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        let sender = self.sender.take();
        if self.is_forked() {
            std::mem::forget(sender);
        }
    }
}
