//! How a task is woken, and told to end.

use std::ptr::NonNull;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::header::{Header, drop_reference};
use super::local;

/// Wakes the task. From its own loop's thread that is one atomic operation on its state.
///
/// # Safety
/// `header` came from [`raw::allocate`](super::raw::allocate), and the caller has a reference to
/// the task.
pub(super) unsafe fn wake(header: NonNull<Header>) {
    // SAFETY: the caller's reference keeps the task alive.
    unsafe {
        if header.as_ref().state.wake() {
            queue(header);
        }
    }
}

/// Asks for the task's end.
///
/// # Safety
/// The same as for [`wake`].
pub(super) unsafe fn abort(header: NonNull<Header>) {
    // SAFETY: the caller's reference keeps the task alive.
    unsafe {
        if header.as_ref().state.abort() {
            queue(header);
        }
    }
}

/// # Safety
/// The same as for [`wake`], and the state just went from idle to SCHEDULED.
unsafe fn queue(header: NonNull<Header>) {
    // A refusal means that the loop has ended: the task is a shell, or will be in a moment.
    // SAFETY: the caller's SCHEDULED means that the node is in no queue; the loop's reference keeps
    // the task, and the caller's keeps the queue until the bell is rung.
    let _ = unsafe { local::schedule(&header.as_ref().queue, header.cast()) };
}

/// A waker's data is the pointer that [`raw::allocate`](super::raw::allocate) returned, unchanged.
/// A pointer made from a `&Header` would not do: the loop runs and frees the whole task through the
/// pointer that a wake queues.
pub(super) fn raw_waker(header: NonNull<Header>) -> RawWaker {
    RawWaker::new(header.as_ptr().cast_const().cast(), vtable())
}

/// Is this the waker of one of our tasks? If so, cloning, dropping and waking it run no user code.
pub(super) fn is_own(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), vtable())
}

fn vtable() -> &'static RawWakerVTable {
    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake_by_value, wake_by_ref, drop);

    /// # Safety
    /// `data` is that of a task's waker, which keeps the task alive.
    unsafe fn header_of(data: *const ()) -> NonNull<Header> {
        // SAFETY: `raw_waker` made it from a `NonNull`.
        unsafe { NonNull::new_unchecked(data.cast_mut().cast()) }
    }
    unsafe fn clone(data: *const ()) -> RawWaker {
        // SAFETY: the waker that is cloned keeps the task alive.
        let header = unsafe { header_of(data) };
        // SAFETY: as above.
        unsafe { header.as_ref() }.state.add_reference();
        raw_waker(header)
    }
    unsafe fn wake_by_value(data: *const ()) {
        // SAFETY: as in `clone`; the reference is given up after its last use.
        unsafe {
            wake_by_ref(data);
            drop(data);
        }
    }
    unsafe fn wake_by_ref(data: *const ()) {
        // SAFETY: as in `clone`.
        unsafe { wake(header_of(data)) };
    }
    unsafe fn drop(data: *const ()) {
        // SAFETY: as in `clone`; the waker's reference goes here.
        unsafe { drop_reference(header_of(data)) };
    }

    &VTABLE
}
