//! The signal handlers. A handler sets a flag, and writes to the eventfd that a loop watches. A
//! forked child inherits the handlers and the eventfd. A signal that is sent to the child must not
//! reach the parent's loop, so the handler checks for a fork first.
//!
//! The handler uses an eventfd and not a socket, because a seccomp filter that refuses `sendto`
//! would hide the signal. A loop cannot work without `write` anyway.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use signal_hook::SigId;
use signal_hook::low_level::{emulate_default_handler, register};

use crate::sys::before_fork::between_forks;
use crate::sys::fork_check::Process;

/// Unblocks `signals` on this thread, and on those that it starts from now on.
pub(crate) fn unblock(signals: &[i32]) -> io::Result<()> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call fills in `set`, the others change and read it. A number that is no
    // signal is refused.
    let refused = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        // Every signal is added, even after a number that is no signal.
        let add = |signal: &i32| libc::sigaddset(set.as_mut_ptr(), *signal) != 0;
        let refused = signals.iter().map(add).fold(false, |any, refused| any | refused);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        refused
    };
    if refused { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(()) }
}

/// From now on, each arrival of `signal` in this process sets `arrived`, and then adds to
/// `eventfd`, until the returned id is unregistered. The eventfd must not block. Several signals
/// may share it.
pub(crate) fn watch(
    signal: i32,
    arrived: Arc<AtomicBool>,
    eventfd: Arc<OwnedFd>,
) -> io::Result<SigId> {
    let process = Process::current()?;
    let tell = move || {
        if !process.is_forked() {
            arrived.store(true, Ordering::Release);
            // If the counter is full, there are arrivals that are not yet taken, and the task that
            // takes one checks all flags.
            let _ = rustix::io::write(&eventfd, &1_u64.to_ne_bytes());
        }
    };
    // SAFETY: what runs in the handler is async-signal-safe: a load, a store and one system call,
    // which rustix makes without touching errno; nothing is allocated or locked, and nothing
    // panics.
    blocked_during(signal, || between_forks(|| unsafe { register(signal, tell) }))
}

/// Undoes a call of [`watch`].
pub(crate) fn unwatch(id: SigId) {
    between_forks(|| signal_hook::low_level::unregister(id));
}

/// From now on, an arrival of `signal` in this process after `from` does what the signal does by
/// default. It is for a process whose loop cannot receive signals because it is busy.
pub(crate) fn end_by(signal: i32, from: Instant) -> io::Result<()> {
    let process = Process::current()?;
    let end = move || {
        if !process.is_forked() && Instant::now() >= from {
            let _ = emulate_default_handler(signal);
        }
    };
    // SAFETY: what runs in the handler is async-signal-safe: a load, a read of the clock, and a
    // function that says it is; nothing is allocated or locked, and nothing panics.
    blocked_during(signal, || between_forks(|| unsafe { register(signal, end) })).map(drop)
}

/// Calls `f` while `signal` is blocked on this thread.
///
/// `signal-hook` first installs its handler, and then stores what the handler calls. A signal that
/// arrives in between would be lost. (Another thread that does not block the signal may still
/// receive it in between.)
fn blocked_during<R>(signal: i32, f: impl FnOnce() -> R) -> R {
    let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the first call fills in `set`, which the others read. A number that is no signal
    // leaves it empty. The last call fills in `before` if it succeeds.
    let is_blocked = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        // A sandbox may refuse the call.
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) == 0
    };
    let result = f();
    if is_blocked {
        // SAFETY: `before` was filled in. The call changes no memory.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    result
}

#[cfg(all(test, not(wakeful_loom), not(miri)))] // Miri has no masks of signals.
mod tests {
    use super::*;

    /// The signals that this thread blocks now.
    fn blocked() -> libc::sigset_t {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the call changes no mask, and fills in `set`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set.as_mut_ptr());
            set.assume_init()
        }
    }

    fn is_blocked(signal: i32) -> bool {
        let set = blocked();
        // SAFETY: it reads a set that the kernel has filled in.
        unsafe { libc::sigismember(&raw const set, signal) == 1 }
    }

    #[test]
    fn a_number_that_is_no_signal_leaves_no_other_one_blocked() {
        const BLOCKED: [i32; 2] = [libc::SIGUSR1, libc::SIGUSR2];
        let mut set = blocked();
        // SAFETY: the calls change a set and this thread's mask.
        unsafe {
            BLOCKED.iter().for_each(|signal| _ = libc::sigaddset(&raw mut set, *signal));
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        }
        assert!(BLOCKED.iter().all(|signal| is_blocked(*signal)));
        let error = unblock(&[libc::SIGUSR1, 9_999, -1, libc::SIGUSR2]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(!BLOCKED.iter().any(|signal| is_blocked(*signal)));
    }
}
