//! Signals that wait while their handlers are registered.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Calls `register` while `signals` are blocked on this thread, and on those that it starts.
///
/// `signal-hook` first installs its handler, and then stores what the handler calls. A signal that
/// comes in between would have no effect at all. (Another thread that does not block the signal may
/// still receive it then.)
pub(crate) fn without_signals<R>(signals: &[i32], register: impl FnOnce() -> R) -> R {
    let signals: SigSet =
        signals.iter().filter_map(|signal| Signal::try_from(*signal).ok()).collect();
    // A sandbox may refuse it.
    let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let registered = register();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    registered
}
