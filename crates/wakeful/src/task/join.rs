//! How a task's end is awaited.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

use super::abort_handle::AbortHandle;
use super::coop;
use super::header::{self, Header};
use super::id::Id;
use super::join_error::JoinError;
use super::registration::register;
use super::waker::abort;
use crate::sys::fork_check::ProcessMark;
use crate::sys::panics;

/// The handle of a task. Await the handle to get the task's output.
///
/// Dropping the handle detaches the task, which continues. [`abort`](Self::abort) ends it. If the
/// task is complete, dropping the handle also drops its output. A panic in that drop is caught.
///
/// ```
/// wakeful::block_on(async {
///     let handle = wakeful::spawn(async { 6 * 7 });
///     assert_eq!(handle.await.expect("no panic, no abort"), 42);
/// });
/// ```
///
/// In a `select!`, await it by reference, so that you can still abort the task:
///
/// ```
/// use std::time::Duration;
///
/// wakeful::block_on(async {
///     let mut handle = wakeful::spawn(std::future::pending::<()>());
///     tokio::select! {
///         _ = &mut handle => unreachable!("it is pending for ever"),
///         () = wakeful::time::sleep(Duration::from_millis(1)) => handle.abort(),
///     }
///     assert!(handle.await.unwrap_err().is_cancelled());
/// });
/// ```
///
/// # Cancel safety
/// You may stop awaiting `&mut handle`, and await it again later.
///
/// # Errors
/// Awaiting the handle returns a [`JoinError`] if the task has panicked or was cancelled.
///
/// # Panics
/// If the handle is polled again after it has returned its result.
///
/// # Threads
/// A handle whose output is `Send` may be moved to any thread and awaited there, in any runtime.
/// The task's future never leaves its loop.
#[must_use = "dropping the handle detaches the task; say so with `detach`"]
pub struct JoinHandle<T> {
    header: NonNull<Header>,
    /// The process that has made the handle, or has awaited it last.
    process: ProcessMark,
    polled: Polled,
    _output: PhantomData<T>,
}

/// The result of a handle's polls so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Polled {
    NotYet,
    /// A poll has left its waker with the task.
    Waits,
    /// A poll has returned the output.
    Ready,
}

// SAFETY: of the task, a handle touches the state, the joiner (both atomic) and, once the task is
// complete, the output, which it may take to its thread if that may be sent. Never the future.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: as above; with a shared handle one can only look at the state and abort.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

impl<T> Unpin for JoinHandle<T> {}
impl<T> std::panic::UnwindSafe for JoinHandle<T> {}
impl<T> std::panic::RefUnwindSafe for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    /// # Safety
    /// The caller hands one reference and the right to the output, a `T`, over.
    pub(super) unsafe fn new(header: NonNull<Header>) -> Self {
        Self { header, process: ProcessMark::now(), polled: Polled::NotYet, _output: PhantomData }
    }

    fn header(&self) -> &Header {
        // SAFETY: the handle holds a reference.
        unsafe { self.header.as_ref() }
    }

    /// Asks the task's loop to drop the future without polling it again. Awaiting the handle then
    /// returns an error that [is cancelled](JoinError::is_cancelled), unless the task finished
    /// first. If the future panics while it is dropped, the error is [that
    /// panic](JoinError::is_panic). May be called on any thread.
    pub fn abort(&self) {
        // SAFETY: the handle holds a reference, to a task that `raw::allocate` made.
        unsafe { abort(self.header) };
    }

    /// Returns whether the task has finished: with an output, a panic or an abort.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.header().state.is_complete()
    }

    /// Lets the task continue without a handle. Its output is dropped on its loop.
    pub fn detach(self) {}

    /// Returns a handle that can only abort the task. You may clone it, and keep it while you await
    /// this handle.
    #[must_use]
    pub fn abort_handle(&self) -> AbortHandle {
        // SAFETY: this handle holds a reference, to a task that `raw::allocate` made.
        unsafe { AbortHandle::new(self.header) }
    }

    /// Returns the task's id.
    #[must_use]
    pub fn id(&self) -> Id {
        Id::of(self.header)
    }

    /// Has a poll returned the output?
    pub(super) fn was_ready(&self) -> bool {
        self.polled == Polled::Ready
    }

    /// Has `waker` woken when the task has finished, or at once if it has. It replaces the waker of
    /// the task that awaits the handle. It must take no lock, because it is woken in a forked
    /// child, too.
    pub(super) fn when_finished(&mut self, waker: &Waker) {
        // The old waker is removed first, because `register` would drop it while it holds its lock.
        self.remove_joiner();
        self.header().state.allow_wake_in_child();
        register(&self.header().joiner, waker);
        if self.is_finished() {
            waker.wake_by_ref();
        }
    }

    /// Removes the waker of the task that awaits the handle.
    fn remove_joiner(&self) {
        if let Some(joiner) = self.header().joiner.take() {
            if self.process.is_forked() {
                // It is a waker of the parent's. Its drop may take a lock that another thread held
                // at the fork.
                mem::forget(joiner);
            } else {
                panics::discard(joiner);
            }
        }
    }

    /// Called when the handle is first awaited in a forked child. From now on its waker is the
    /// child's own, and is woken when the child drops the task's loop.
    #[cold]
    fn comes_to_child(&mut self) {
        self.remove_joiner();
        self.header().state.allow_wake_in_child();
        self.process = ProcessMark::now();
    }

    /// The output of a task that has finished.
    pub(super) fn into_output(self) -> Result<T, JoinError> {
        assert!(self.is_finished(), "only a task that has finished has an output");
        self.take().expect("nobody has taken the output")
    }

    fn take(&self) -> Option<Result<T, JoinError>> {
        // SAFETY: complete (the callers looked), of this type, and this is the handle.
        unsafe { header::take_output(self.header) }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// # Panics
    /// If it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        std::task::ready!(coop::poll_proceed(cx));
        if !self.is_finished() {
            if self.process.is_forked() {
                self.comes_to_child();
            }
            if mem::replace(&mut self.polled, Polled::Waits) == Polled::Waits {
                // The old waker is removed first, because `register` would drop it with its lock
                // held, and never release the lock if the drop panics.
                self.remove_joiner();
            }
            register(&self.header().joiner, cx.waker());
            if !self.is_finished() {
                return Poll::Pending;
            }
        }
        coop::made_progress();
        self.polled = Polled::Ready;
        Poll::Ready(self.take().expect("a JoinHandle is not polled again after it was ready"))
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if self.header().state.drop_handle() {
            panics::discard(self.take());
        }
        self.remove_joiner();
        // SAFETY: the handle's reference, which it gives up here.
        unsafe { header::drop_reference(self.header) };
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("id", &self.id())
            .field("finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}
