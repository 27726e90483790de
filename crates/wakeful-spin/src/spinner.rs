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

/// Asks this thread's spinner, which is made if there is none of this process. `None`: nothing may
/// spin, or the thread is within `ask` already (a signal handler waits), or something panicked.
#[inline]
pub(crate) fn with<T>(ask: impl FnOnce(&mut Spinner) -> T) -> Option<T> {
    let settings = settings::enabled()?;
    let asked = || {
        SPINNER.with(|spinner| {
            let mut spinner = spinner.try_borrow_mut().ok()?;
            if !spinner.as_ref().is_some_and(|spinner| spinner.is_of_this_process()) {
                // The one of the parent is forgotten.
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

/// Starts threads that find out what a sleep costs. Allocates.
pub(crate) fn begin_survey() {
    catch_unwind(Spinner::begin_survey).unwrap_or_else(|panic| {
        settings::disable();
        std::mem::forget(panic);
    });
}
