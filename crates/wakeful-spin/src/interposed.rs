//! The waits of libc, under their own names. A program calls these functions instead of libc's.
//!
//! # Signals
//! A program may rely on EINTR: a signal's handler sets a flag, and the wait that the signal
//! interrupts returns, so that the program sees the flag. Between two polls of a spin, the thread
//! is in no system call. A handler that ran there would interrupt nothing, and the thread could
//! sleep in spite of the flag. Therefore:
//!
//! 1. Before a spin, one call blocks all signals of the thread and returns the mask that was in
//!    force. Two kinds of signals are not blocked: those that a fault raises, because the kernel
//!    kills a process that blocks one of these, and the two that libc keeps for itself. If one of
//!    them is sent by `kill`, its handler runs and does not end the spin.
//! 2. Each look of the spin ends with a `ppoll` whose timeout is zero. Its mask is the one that the
//!    program wants in force: the program's own argument (`epoll_pwait`, `ppoll`), or the thread's
//!    mask before the spin. A program that polls descriptors gets one such `ppoll` of them. A
//!    program that has an epoll gets an `epoll_pwait` that does not wait, and if that finds
//!    nothing, a `ppoll` of no descriptor. The kernel sets the mask, looks for events and then for
//!    signals, and restores the mask. For every signal, this is one step. If a handler has to run,
//!    it runs before `ppoll` returns, under the mask under which it would have run without this
//!    crate. Then `ppoll` returns EINTR, whether the handler has SA_RESTART or not, as `epoll_wait`
//!    and `poll` do (signal(7)). That is the answer of the wait. A signal without a handler stops
//!    or ends the process there, or is discarded, and `ppoll` continues (ERESTARTNOHAND). If
//!    several threads can get a signal, the kernel chooses one (see the third difference).
//! 3. The sleep after a spin is an `epoll_pwait` or `ppoll` with the same mask. A signal that has
//!    come after the last look ends the sleep at once.
//! 4. Then the thread gets its mask back. A signal that is delivered at this point came after the
//!    wait had its answer. It acts as if it had come when libc's function returned.
//!
//! So no handler runs between two looks, or between the last look and the sleep, and no EINTR is
//! lost. A handler runs once, because this crate takes no signals: the kernel delivers them.
//!
//! A signal that comes before the spin, while the governor decides, acts like one that comes just
//! before the call. A program that cannot tolerate that uses the mask of `epoll_pwait` and `ppoll`,
//! which is in force from the first look on.
//!
//! **What is different.** The kernel keeps a signal that is blocked *and ignored*, but drops one
//! that is only ignored. So if a signal that the program ignores (SIGCHLD and SIGWINCH by default)
//! comes in the fraction of a microsecond between the last look and the sleep, `epoll_wait` returns
//! EINTR although no handler ran. It also does so after SIGSTOP and SIGCONT, with or without this
//! crate. The second difference: a signal waits for the next look. That takes less than a
//! microsecond as long as the thread has its CPU.
//!
//! The third difference: which thread gets a signal of the whole process (kill(2)). The kernel
//! prefers the main thread, unless that thread blocks the signal. A spin blocks it. So if the main
//! thread spins, and another thread does not block the signal, the handler runs on that thread. The
//! main thread's wait then does not end with EINTR. Without this crate it would have. (With several
//! threads, the kernel may choose another one in any case, for example while the main thread blocks
//! the signal for a handler.) If the main thread must see the signal, block it in all other
//! threads, or have the handler write into a pipe that the main thread watches.
//!
//! A handler may call a wait itself. That wait does not spin if the handler's thread is in a spin.
//! A handler may also leave by `siglongjmp`. The mask is then what it would be without this crate.
//! If the handler leaves a spin in this way, its thread never spins again, and neither does another
//! thread of this process on that CPU. Nor can the thread be cancelled (`pthread_cancel`) until it
//! calls `pthread_setcancelstate`.
//!
//! # Waits that do not spin
//! Waits with a timeout of 0, and a `poll` of no descriptor, go to the kernel unchanged.
//!
//! A program that is compiled with `_FORTIFY_SOURCE` may call `__poll_chk` and `__ppoll_chk`. They
//! are not defined here, so they do not spin.
#![allow(unsafe_code)]

use std::panic::catch_unwind;
use std::ptr::null;

use libc::{c_int, epoll_event, nfds_t, pollfd, sigset_t, timespec};

use crate::spin::wait;
use crate::waits::{Epoll, Poll, PollTimeout, Timeout};
use crate::{enable, real};

/// The loader calls this function before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    // The panic hook has already reported the panic. The panic ends here.
    let _ = catch_unwind(|| {
        real::look_up();
        enable::read_environment();
    });
}

/// See epoll_wait(2).
///
/// # Safety
/// The arguments must be as the function of libc requires them.
// SAFETY: the function does what libc promises for this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let timeout = Timeout::Milliseconds(timeout);
    wait(&Epoll { epoll, events, most, timeout, mask: null() })
}

/// See epoll_pwait(2).
///
/// # Safety
/// The arguments must be as the function of libc requires them.
// SAFETY: the function does what libc promises for this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    wait(&Epoll { epoll, events, most, timeout: Timeout::Milliseconds(timeout), mask })
}

/// See epoll_pwait2(2).
///
/// # Safety
/// The arguments must be as the function of libc requires them.
// SAFETY: the function does what libc promises for this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    wait(&Epoll { epoll, events, most, timeout: Timeout::Time(timeout), mask })
}

/// See poll(2).
///
/// # Safety
/// The arguments must be as the function of libc requires them.
// SAFETY: the function does what libc promises for this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn poll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
) -> c_int {
    wait(&Poll { fds, count, timeout: PollTimeout::Milliseconds(timeout), mask: null() })
}

/// See ppoll(2).
///
/// # Safety
/// The arguments must be as the function of libc requires them.
// SAFETY: the function does what libc promises for this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // libc reads the time, too.
    // SAFETY: by libc's contract, this is null or points to a time.
    let timeout = unsafe { timeout.as_ref() }.copied();
    wait(&Poll { fds, count, timeout: PollTimeout::Time(timeout), mask })
}
