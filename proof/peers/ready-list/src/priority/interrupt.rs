//! Delays a signal that ends the program until the control group is removed, because nothing else
//! would remove it.
//!
//! [`put_off`] the signals, check [`is_wanted`] while measuring, and call [`end_if_wanted`] when
//! everything is cleaned up. The same signal a second time ends the program at once.

#![allow(unsafe_code)] // A signal handler.

use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::SeqCst;

/// The signal that has come, or 0.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    SIGNAL.store(signal, SeqCst);
}

/// From now on, the first Ctrl-C, SIGTERM or SIGHUP is only recorded.
pub fn put_off() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: zero is a valid value for every field.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = note as *const () as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
        // SAFETY: the handler is async-signal-safe: it stores to an atomic.
        if unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Returns whether such a signal has come.
pub fn is_wanted() -> bool {
    SIGNAL.load(SeqCst) != 0
}

/// Ends the program as the signal would have.
pub fn end_if_wanted() {
    let signal = SIGNAL.load(SeqCst);
    if signal != 0 {
        // SAFETY: it takes a number. The handler was removed at the first signal of this number.
        unsafe { libc::raise(signal) };
    }
}
