//! The spinner of each thread.
//!
//! It has nothing to drop, so the thread-local needs no destructor, and so no memory: a wait may be
//! in a signal handler that has interrupted `malloc`. Its place on a CPU is given up at the end of
//! each wait.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use wakeful::idle::Spinner;

use crate::settings;

thread_local! {
    static SPINNER: RefCell<Option<ManuallyDrop<Spinner>>> = const { RefCell::new(None) };
}

/// Calls `ask` with this thread's spinner. Makes the spinner if this process has none for the
/// thread. Returns `None` if nothing may spin, if the thread is already within `ask` (because a
/// signal handler waits), or if something panicked.
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
    catch_unwind(AssertUnwindSafe(asked)).unwrap_or_else(|panic| {
        settings::disable();
        std::mem::forget(panic);
        None
    })
}

/// Starts threads that measure what a sleep costs. Allocates memory.
pub(crate) fn begin_survey() {
    catch_unwind(Spinner::begin_survey).unwrap_or_else(|panic| {
        settings::disable();
        std::mem::forget(panic);
    });
}
