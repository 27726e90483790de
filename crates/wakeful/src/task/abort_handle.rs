//! Aborting a task without awaiting it.

use std::fmt;
use std::ptr::NonNull;

use super::header::{Header, drop_reference};
use super::id::Id;
use super::waker::abort;

/// Aborts a task, but cannot await its output.
///
/// [`JoinHandle::abort_handle`](super::JoinHandle::abort_handle) and
/// [`JoinSet::spawn`](super::JoinSet::spawn) return one. Dropping it has no effect on the task. The
/// task's memory is freed only with the last of its handles and wakers, even if its future and
/// output were dropped earlier.
///
/// ```
/// wakeful::block_on(async {
///     let task = wakeful::spawn(std::future::pending::<()>());
///     let abort = task.abort_handle();
///     std::thread::spawn(move || abort.abort()).join().expect("no panic");
///     assert!(task.await.unwrap_err().is_cancelled());
/// });
/// ```
///
/// # Threads
/// `Clone`, `Send` and `Sync`, whatever the task's output is.
pub struct AbortHandle {
    header: NonNull<Header>,
}

// SAFETY: of the task it touches the state alone, which is atomic. The queue that an abort pushes
// to is for any thread. Never the future, never the output: the memory that its drop may free has
// neither.
unsafe impl Send for AbortHandle {}
// SAFETY: as above.
unsafe impl Sync for AbortHandle {}

impl std::panic::UnwindSafe for AbortHandle {}
impl std::panic::RefUnwindSafe for AbortHandle {}

impl AbortHandle {
    /// # Safety
    /// `header` came from [`raw::allocate`](super::raw::allocate), and the caller has a reference
    /// to the task.
    pub(super) unsafe fn new(header: NonNull<Header>) -> Self {
        // SAFETY: the caller's reference keeps the task alive.
        unsafe { header.as_ref() }.state.add_reference();
        Self { header }
    }

    fn header(&self) -> &Header {
        // SAFETY: the handle holds a reference.
        unsafe { self.header.as_ref() }
    }

    /// Asks the task's loop to drop the future without polling it again. It has no effect if the
    /// task has finished. See [`JoinHandle::abort`](super::JoinHandle::abort).
    pub fn abort(&self) {
        // SAFETY: the handle holds a reference, to a task that `raw::allocate` made.
        unsafe { abort(self.header) };
    }

    /// Returns whether the task has finished: with an output, a panic or an abort.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.header().state.is_complete()
    }

    /// Returns the task's id.
    #[must_use]
    pub fn id(&self) -> Id {
        Id::of(self.header)
    }
}

impl Clone for AbortHandle {
    fn clone(&self) -> Self {
        // SAFETY: this handle holds a reference, to a task that `raw::allocate` made.
        unsafe { Self::new(self.header) }
    }
}

impl Drop for AbortHandle {
    fn drop(&mut self) {
        // SAFETY: the handle's reference, which it gives up here.
        unsafe { drop_reference(self.header) };
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle")
            .field("id", &self.id())
            .field("finished", &self.is_finished())
            .finish()
    }
}
