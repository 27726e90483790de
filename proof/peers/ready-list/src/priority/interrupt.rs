//! A signal that ends the program is put off until the control group is removed, because nobody
//! else would remove it.
//!
//! [`put_off`] the signals, look at [`is_wanted`] while measuring, and [`end_if_wanted`] when all
//! is put in order. The same signal a second time ends the program at once.

#![allow(unsafe_code)] // A signal handler.

use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::SeqCst;

/// The signal that came; 0 if none did.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    SIGNAL.store(signal, SeqCst);
}

/// From now on the first Ctrl-C, SIGTERM or SIGHUP is only noted.
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

/// Whether such a signal came.
pub fn is_wanted() -> bool {
    SIGNAL.load(SeqCst) != 0
}

/// Ends the program as the signal that came would have.
pub fn end_if_wanted() {
    let signal = SIGNAL.load(SeqCst);
    if signal != 0 {
        // SAFETY: takes a number. The handler is gone since the first signal of this number.
        unsafe { libc::raise(signal) };
    }
}
