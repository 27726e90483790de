//! How [errands](super::errands) are given, and who runs them.
//!
//! An idle thread of the pool runs them. If there is no idle thread, maybe for ever, loops run them
//! by their timers ([`try_again`]): the loop that has given an errand, and each loop that starts
//! while errands are left, because the other one may have ended.

use std::io;

use super::pool::{self, PAUSE, Pool};
use super::try_again;
use crate::sys::fork_check::Process;

/// Has `errand` called each second, by a thread without other work or by a loop, until it returns
/// `true`. It must not block, panic or fork.
///
/// Without a loop on this thread and without an idle thread, the next loop that starts calls it.
///
/// # Errors
/// Forks cannot be detected (no memory).
pub(crate) fn on_errand(errand: impl FnMut() -> bool + Send + 'static) -> io::Result<()> {
    let pool = pool::current()?;
    pool.add_errand(errand);
    // Without a loop, errands that could be done would become more with each call.
    if !has_a_loop(pool) {
        pool.errands.run_if_due();
    }
    Ok(())
}

/// Called when a loop runs on this thread. It looks after the errands that are left.
#[inline]
pub(crate) fn look_after_errands(process: &Process) {
    if let Ok(pool) = pool::of(process)
        && pool.errands.are_left()
    {
        has_a_loop(pool);
    }
}

/// Has the loop of this thread, if it has one, look after the errands. Returns whether it has one.
#[cold]
fn has_a_loop(pool: &'static Pool) -> bool {
    // It waits for no job.
    try_again::after_each(PAUSE, pool, 0)
}

/// Runs all errands now, on any thread. Returns whether any has done its work.
pub(crate) fn run_errands() -> bool {
    pool::current().is_ok_and(|pool| pool.errands.run())
}
