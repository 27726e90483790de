//! The spinner of each thread.
//!
//! It has nothing to drop, so the thread-local needs no destructor, and so no memory: a wait may be
//! in a signal handler that has interrupted `malloc`. Its place on a CPU is given up at the end of
//! each wait.
//!
//! A panic ends here. A cancellation (`pthread_cancel`) must not come here, because the C library
//! aborts the process if Rust catches it. For example, `close` is a cancellation point.

use std::any::Any;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use wakeful::idle::Spinner;

use crate::real::without_cancellation;
use crate::settings;

thread_local! {
    static SPINNER: RefCell<Option<ManuallyDrop<Spinner>>> = const { RefCell::new(None) };
}

/// Calls `ask` with this thread's spinner. Makes the spinner if this process has none for the
/// thread. Returns `None` if nothing may spin, if the thread may be cancelled at any instruction,
/// if it is already within `ask` (because a signal handler waits), or if something panicked.
#[inline]
pub(crate) fn with<T>(ask: impl FnOnce(&mut Spinner) -> T) -> Option<T> {
    let settings = settings::enabled()?;
    let asked = || {
        SPINNER.with(|spinner| {
            let mut spinner = spinner.try_borrow_mut().ok()?;
            if !spinner.as_ref().is_some_and(|spinner| spinner.is_of_this_process()) {
                // A forked child forgets its parent's spinner.
                *spinner = Some(ManuallyDrop::new(Spinner::of_this_thread(settings).ok()?));
            }
            spinner.as_mut().map(|spinner| ask(spinner))
        })
    };
    without_cancellation(|| caught(asked)).flatten().flatten()
}

/// Starts threads that measure what a sleep costs. Allocates memory.
pub(crate) fn begin_survey() {
    without_cancellation(|| caught(Spinner::begin_survey));
}

/// Returns `None` if `ask` panicked.
///
/// This is not inlined, because a thread may be cancelled asynchronously in the frames of a wait.
/// The C library also aborts the process if that is in a frame that catches unwinding.
#[inline(never)]
fn caught<T>(ask: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(ask)).map_err(forget).ok()
}

/// Its destructor may panic, too.
fn forget(panic: Box<dyn Any + Send>) {
    settings::disable();
    std::mem::forget(panic);
}
