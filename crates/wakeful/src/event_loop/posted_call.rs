//! A call that another thread has posted to a loop, and for whose result it waits.
//!
//! The channel for the result has a lock, which the thread that waits takes, too. So a forked child
//! neither sends the result nor drops the sender: the thread may have held the lock at the fork. It
//! does not drop the call's closure either, which belongs to that thread.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::sys::fork_check::Process;

/// A call that has not run. Its drop tells the thread that waits that it will not run.
pub(super) struct PostedCall<F, R> {
    /// `None` only during the drop.
    call: Option<(F, SyncSender<thread::Result<R>>)>,
    process: Process,
}

impl<F: FnOnce() -> R, R> PostedCall<F, R> {
    /// A call to the loop of `process`, and where its result comes.
    pub(super) fn new(f: F, process: Process) -> (Self, Receiver<thread::Result<R>>) {
        let (sender, result) = sync_channel(1);
        (Self { call: Some((f, sender)), process }, result)
    }

    /// Calls the closure, and sends what it returns, or its panic.
    pub(super) fn run(mut self) {
        let Some((f, sender)) = self.call.take() else { return };
        let result = catch_unwind(AssertUnwindSafe(f));
        if self.process.is_forked() {
            // The closure has forked, and has returned in the child.
            mem::forget((result, sender));
            return;
        }
        // The thread waits until the result is sent, or the sender is dropped.
        let _ = sender.send(result);
    }
}

impl<F, R> Drop for PostedCall<F, R> {
    fn drop(&mut self) {
        if self.process.is_forked() {
            mem::forget(self.call.take());
        }
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::TryRecvError;

    use super::*;

    #[test]
    fn the_result_comes_once_or_the_end_is_told() {
        let process = Process::current().unwrap();
        let (call, result) = PostedCall::new(|| 42, process);
        call.run();
        assert_eq!(result.recv().unwrap().unwrap(), 42);
        let (call, result) = PostedCall::new(|| 42, process);
        drop(call);
        assert!(result.recv().is_err());
    }

    #[test]
    fn in_a_forked_child_nothing_is_sent_and_nothing_dropped() {
        let of_caller = Arc::new(());
        let (held, process) = (of_caller.clone(), Process::of_parent());
        let (call, result) = PostedCall::new(move || drop(held), process);
        drop(call);
        assert!(matches!(result.try_recv(), Err(TryRecvError::Empty)), "the sender is there");
        assert_eq!(Arc::strong_count(&of_caller), 2, "and the closure");
        let (call, result) = PostedCall::new(|| 42, process);
        call.run();
        assert!(matches!(result.try_recv(), Err(TryRecvError::Empty)), "neither sent nor dropped");
    }
}
