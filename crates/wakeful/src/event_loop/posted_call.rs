//! A call that another thread has posted to a loop, and for whose result it waits.
//!
//! The channel for the result has a lock, which the thread that waits takes, too. So a forked child
//! neither sends the result nor drops the sender: the thread may have held the lock at the fork. It
//! does not drop the call's closure either, which belongs to that thread.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::sys::fork_check::Process;

/// What ends the wait for a call.
pub(super) enum Answer<R> {
    /// What the closure returned, or its panic.
    Result(thread::Result<R>),
    /// The wait was told to end.
    GivenUp,
}

/// A call that has not run. Its drop tells the thread that waits that it will not run.
pub(super) struct PostedCall<F, R> {
    /// `None` only during the drop.
    call: Option<(F, Arc<SyncSender<Answer<R>>>)>,
    process: Process,
}

impl<F: FnOnce() -> R, R> PostedCall<F, R> {
    /// A call to the loop of `process`, and where its result comes.
    pub(super) fn new(f: F, process: Process) -> (Self, Awaited<R>) {
        let (sender, answers) = sync_channel(1);
        let sender = Arc::new(sender);
        let awaited = Awaited { answers, sender: Arc::downgrade(&sender) };
        (Self { call: Some((f, sender)), process }, awaited)
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
        // If there is no room, the wait was given up.
        let _ = sender.try_send(Answer::Result(result));
    }
}

impl<F, R> Drop for PostedCall<F, R> {
    fn drop(&mut self) {
        if self.process.is_forked() {
            mem::forget(self.call.take());
        }
    }
}

/// The result of a call, for which this thread waits.
pub(super) struct Awaited<R> {
    answers: Receiver<Answer<R>>,
    /// The sender is gone when the call will not run.
    sender: Weak<SyncSender<Answer<R>>>,
}

impl<R> Awaited<R> {
    /// Waits.
    ///
    /// # Errors
    /// The call will not run.
    pub(super) fn recv(&self) -> Result<Answer<R>, RecvError> {
        self.answers.recv()
    }

    /// Waits for no longer than this.
    ///
    /// # Errors
    /// The call will not run, or the time is over.
    pub(super) fn recv_timeout(&self, most: Duration) -> Result<Answer<R>, RecvTimeoutError> {
        self.answers.recv_timeout(most)
    }

    /// Returns a function that ends the wait, for another thread.
    pub(super) fn give_up(&self) -> Box<dyn FnOnce() + Send>
    where
        R: Send + 'static,
    {
        let sender = self.sender.clone();
        Box::new(move || {
            if let Some(sender) = sender.upgrade() {
                // If there is no room, the result has come.
                let _ = sender.try_send(Answer::GivenUp);
            }
        })
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::sync::mpsc::TryRecvError;

    use super::*;

    #[test]
    fn the_result_comes_once_or_the_end_is_told() {
        let process = Process::current().unwrap();
        let (call, result) = PostedCall::new(|| 42, process);
        call.run();
        assert!(matches!(result.recv(), Ok(Answer::Result(Ok(42)))));
        let (call, result) = PostedCall::new(|| 42, process);
        drop(call);
        assert!(result.recv().is_err());
    }

    #[test]
    fn a_wait_that_is_given_up_ends_and_the_call_may_still_run() {
        let process = Process::current().unwrap();
        let (call, result) = PostedCall::new(|| 42, process);
        let (give_up, again) = (result.give_up(), result.give_up());
        give_up();
        call.run();
        assert!(matches!(result.recv(), Ok(Answer::GivenUp)));
        again();
        assert!(result.recv().is_err());
    }

    #[test]
    fn in_a_forked_child_nothing_is_sent_and_nothing_dropped() {
        let of_caller = Arc::new(());
        let (held, process) = (of_caller.clone(), Process::of_parent());
        let (call, result) = PostedCall::new(move || drop(held), process);
        drop(call);
        assert!(
            matches!(result.answers.try_recv(), Err(TryRecvError::Empty)),
            "the sender is there"
        );
        assert_eq!(Arc::strong_count(&of_caller), 2, "and the closure");
        let (call, result) = PostedCall::new(|| 42, process);
        call.run();
        assert!(
            matches!(result.answers.try_recv(), Err(TryRecvError::Empty)),
            "neither sent nor dropped"
        );
    }
}
