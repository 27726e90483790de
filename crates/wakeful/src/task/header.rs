//! The part that is the same in every task, whatever its future.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

use atomic_waker::AtomicWaker;

use super::Queue;
use super::join_error::JoinError;
use super::queued::Queued;
use super::state::State;

/// The first field of every task, whatever its future.
#[repr(C)]
pub(super) struct Header {
    /// The first field, so that a pointer to the node is also one to the header and to the task.
    pub(super) queued: Queued,
    pub(super) state: State,
    pub(super) queue: Arc<Queue>,
    pub(super) vtable: &'static Vtable,
    /// The task's place among the loop's tasks. Only the loop's thread uses it.
    pub(super) place: Cell<usize>,
    pub(super) joiner: AtomicWaker,
}

/// The place of a task that the loop has not seen yet, because it was spawned from another thread.
pub(super) const NO_PLACE: usize = usize::MAX;

pub(super) struct Vtable {
    /// Ends the task without polling it.
    pub(super) cancel: unsafe fn(NonNull<Header>),
    /// Moves the output into an `Option<Result<F::Output, JoinError>>`, if it is still there.
    pub(super) take_output: unsafe fn(NonNull<Header>, *mut ()),
    pub(super) free: unsafe fn(NonNull<Header>),
}

/// Ends a task at its loop's end.
///
/// # Safety
/// The task is one of the loop's, and this is the loop's thread.
pub(super) unsafe fn cancel(header: NonNull<Header>) {
    // SAFETY: the caller's promise.
    unsafe { (header.as_ref().vtable.cancel)(header) }
}

/// Moves the output of a complete task out, if it is still there.
///
/// # Safety
/// The task is complete, has an output of type `T`, and the caller is its only handle.
pub(super) unsafe fn take_output<T>(header: NonNull<Header>) -> Option<Result<T, JoinError>> {
    let mut output = None;
    // SAFETY: the caller's promise.
    unsafe { (header.as_ref().vtable.take_output)(header, (&raw mut output).cast()) };
    output
}

/// Gives a reference up, and frees the task if it was the last one.
///
/// # Safety
/// `header` came from [`raw::allocate`](super::raw::allocate), and the reference is the caller's to
/// give up.
pub(super) unsafe fn drop_reference(header: NonNull<Header>) {
    // SAFETY: the caller's reference keeps the task alive until here.
    unsafe {
        if header.as_ref().state.drop_reference() {
            (header.as_ref().vtable.free)(header);
        }
    }
}
