//! A process that forks while another thread is in the handler of a signal. The child has no such
//! thread, and must not wait for it. Alone in its process, because a handler stays.

#![allow(unsafe_code)] // A handler, `fork`, and how a child ends.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, ptr, thread};

use wakeful::EventLoop;
use wakeful::signal::{SIGUSR1, SIGUSR2, Signals};

static IS_IN_HANDLER: AtomicBool = AtomicBool::new(false);
static MAY_LEAVE: AtomicBool = AtomicBool::new(false);

/// The program's own handler.
extern "C" fn stays(_: c_int) {
    IS_IN_HANDLER.store(true, Ordering::Release);
    while !MAY_LEAVE.load(Ordering::Acquire) {
        std::hint::spin_loop();
    }
}

/// Watches for signals twice, and receives one each time.
fn watches() -> io::Result<()> {
    for signal in [SIGUSR2, SIGUSR1] {
        let received = wakeful::block_on(async {
            MAY_LEAVE.store(true, Ordering::Release);
            let mut signals = Signals::new(&[signal])?;
            // SAFETY: it takes a number.
            unsafe { libc::raise(signal) };
            signals.recv().await
        });
        assert_eq!(received?, signal);
    }
    Ok(())
}

#[test]
fn a_child_that_is_forked_while_another_thread_handles_a_signal_watches_for_signals() {
    // SAFETY: the handler only uses atomics. The call reads a structure, which may be zeros.
    unsafe {
        let mut own: libc::sigaction = std::mem::zeroed();
        own.sa_sigaction = stays as *const () as usize;
        assert_eq!(libc::sigaction(SIGUSR1, &raw const own, ptr::null_mut()), 0);
    }
    let mut event_loop = EventLoop::new().unwrap();
    let mut signals = event_loop.block_on(async { Signals::new(&[SIGUSR1]) }).unwrap().unwrap();
    // SAFETY: it takes a number.
    let handles = thread::spawn(|| unsafe { libc::raise(SIGUSR1) });
    while !IS_IN_HANDLER.load(Ordering::Acquire) {
        thread::yield_now();
    }
    // SAFETY: the other thread has no lock. The child ends by `_exit`, or by the alarm if it hangs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::alarm(20);
            libc::_exit(i32::from(watches().is_err()));
        }
    }
    let mut status = -1;
    // SAFETY: it writes the status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    MAY_LEAVE.store(true, Ordering::Release);
    handles.join().unwrap();
    assert_eq!(status, 0, "it was killed by the alarm, or has failed");
    let received = event_loop.block_on(async { signals.recv().await }).unwrap();
    assert_eq!(received.unwrap(), SIGUSR1);
}
