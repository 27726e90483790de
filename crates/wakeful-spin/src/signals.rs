//! Blocks the signals of this thread while it spins. [`interposed`](crate::interposed) says why.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr::null_mut;

use libc::sigset_t;

/// Signals that are raised by what the thread itself does (a fault, or a seccomp filter's trap). If
/// one of them were blocked, the kernel would kill the process.
const SYNCHRONOUS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// The mask that the thread had before, and gets back afterwards. It is no guard with a destructor,
/// because a cancelled thread may leave only frames in which nothing has to be dropped.
#[derive(Clone, Copy)]
pub(crate) struct Before(sigset_t);

/// Blocks all signals of this thread, except those in [`SYNCHRONOUS`] and those that libc keeps for
/// itself (for cancellation, and for `setuid` in another thread). Returns `None` if the kernel
/// refuses.
pub(crate) fn block() -> Option<Before> {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigfillset` fills in `all`, the others read it, and `pthread_sigmask` fills in
    // `before` if it returns 0.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in SYNCHRONOUS {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        let refused = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        (refused == 0).then(|| Before(before.assume_init()))
    }
}

impl Before {
    pub(crate) fn mask(&self) -> sigset_t {
        self.0
    }

    /// Whether any signal is blocked.
    pub(crate) fn blocks_any(&self) -> bool {
        // SAFETY: it reads a mask that the kernel has filled in.
        let blocks = |signal| unsafe { libc::sigismember(&raw const self.0, signal) } == 1;
        (1..=libc::SIGRTMAX()).any(blocks)
    }

    /// Restores the mask. Signals that have come meanwhile, and that the mask does not block, are
    /// delivered before this returns.
    pub(crate) fn restore(self) {
        // SAFETY: it reads a mask that the kernel has filled in.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, null_mut()) };
    }
}
