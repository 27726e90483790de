//! Blocks signals while their handlers are registered.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Calls `register` while `signals` are blocked on this thread, and on the threads that it starts.
///
/// `signal-hook` first installs its handler, and then stores what the handler calls. A signal that
/// arrives in between would be lost. (Another thread that does not block the signal may still
/// receive it in between.)
pub(crate) fn without_signals<R>(signals: &[i32], register: impl FnOnce() -> R) -> R {
    let signals: SigSet =
        signals.iter().filter_map(|signal| Signal::try_from(*signal).ok()).collect();
    // A sandbox may refuse the call.
    let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let registered = register();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    registered
}
