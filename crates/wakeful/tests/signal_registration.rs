//! A signal that arrives while its handler is registered. The test is alone in its process, because
//! it replaces the C library's `sigaction`.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use wakeful::signal::{SIGUSR1, Signals};
use wakeful::time::timeout;

static INSTALLED: AtomicUsize = AtomicUsize::new(0);

type SigAction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

/// Does what the C library's function does. Raises SIGUSR1 directly after its handler was
/// installed.
// SAFETY: the signature is that of the C library's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the C library has such a function. The caller's promise holds for it.
    unsafe {
        let real = libc::dlsym(libc::RTLD_NEXT, c"sigaction".as_ptr());
        assert!(!real.is_null(), "the C library has a sigaction");
        let real: SigAction = mem::transmute(real);
        let done = real(signal, new, old);
        if signal == SIGUSR1 && !new.is_null() {
            INSTALLED.fetch_add(1, Ordering::Relaxed);
            libc::raise(signal);
        }
        done
    }
}

#[test]
fn a_signal_that_comes_while_its_handler_is_registered_is_received() {
    wakeful::block_on(async {
        let mut signals = Signals::new(&[SIGUSR1]).unwrap();
        assert_eq!(INSTALLED.load(Ordering::Relaxed), 1);
        let received = timeout(Duration::from_secs(20), signals.recv()).await;
        assert_eq!(received.expect("it is not lost").unwrap(), SIGUSR1);
    });
}
