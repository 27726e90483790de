//! libc's waits, by their names: what a program calls instead of libc's.
//!
//! # Signals
//! A program may rely on EINTR: its handler sets a flag, and the wait that it interrupts returns,
//! so that the flag is looked at. Between two polls of a spin the thread is in no system call, so a
//! handler that ran there would end nothing, and the thread could sleep in spite of the flag. So:
//!
//! 1. Before a spin all signals of the thread are blocked, by one call that also says what the mask
//!    was. Signals that a fault raises stay as they are, because the kernel kills a process that
//!    blocks one of these; sent by `kill`, they run their handlers and end no spin. So do the two
//!    that libc keeps for itself.
//! 2. Each look of the spin ends with a `ppoll` with a timeout of nothing, and with the mask that
//!    the program wants to have in force: its own argument (`epoll_pwait`, `ppoll`), or what the
//!    thread's was. It is the program's own `poll`; or, where that has an epoll, an `epoll_pwait`
//!    that does not wait, and if it brought nothing a `ppoll` of no descriptor. The kernel sets
//!    that mask, looks for events and then for signals, and takes the mask back, which is one for
//!    any signal. If a handler is to run, it runs before `ppoll`
//!    returns, under the mask under which it would have, and `ppoll` answers EINTR, whether the
//!    handler has SA_RESTART or not, as `epoll_wait` and `poll` do (signal(7)). That is the answer
//!    of the wait. A signal that nobody handles stops or ends the process there, or is discarded,
//!    and `ppoll` goes on (ERESTARTNOHAND). Of several threads the kernel says which gets a signal.
//! 3. The sleep behind a spin is `epoll_pwait` or `ppoll` with the same mask: what came after the
//!    last look ends it at once.
//! 4. Then the thread's mask is given back. What is delivered there came after the wait had an
//!    answer, as if it had come when libc's function returned.
//!
//! So no handler runs between a look and the next, or between the last and the sleep, and EINTR is
//! not lost. A handler runs once, because nothing here takes signals: the kernel delivers them.
//!
//! A signal that comes before the spin, while the governor is asked, is as one that comes just
//! before the call. A program that cannot bear that uses the mask of `epoll_pwait` and `ppoll`,
//! which is in force from the first look on.
//!
//! **What is different.** A signal that is blocked *and ignored* is kept, and one that is only
//! ignored is not. So if a signal that the program ignores (SIGCHLD and SIGWINCH by default) comes
//! in the fraction of a microsecond between the last look and the sleep, `epoll_wait` returns EINTR
//! though no handler ran. It does so behind SIGSTOP and SIGCONT, too, with or without this crate.
//! And a signal waits for the next look, for less than a microsecond as long as the thread has its
//! CPU.
//!
//! A handler may wait itself, for which nobody spins while its thread does. It may leave by
//! `siglongjmp`: its mask is what it would have been; from within a spin that thread never spins
//! again, nor does another of this process on that CPU.
//!
//! # Waits that do not spin
//! Those with a timeout of 0, and a `poll` for no descriptor, go to the kernel as they are.
//!
//! A program that is compiled with `_FORTIFY_SOURCE` may call `__poll_chk` and `__ppoll_chk`, which
//! are not defined here and do not spin.
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
/// As for libc's.
// SAFETY: it is what libc promises for this name.
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
/// As for libc's.
// SAFETY: it is what libc promises for this name.
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
/// As for libc's.
// SAFETY: it is what libc promises for this name.
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
/// As for libc's.
// SAFETY: it is what libc promises for this name.
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
/// As for libc's.
// SAFETY: it is what libc promises for this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // libc reads it, too.
    // SAFETY: null, or a time.
    let timeout = unsafe { timeout.as_ref() }.copied();
    wait(&Poll { fds, count, timeout: PollTimeout::Time(timeout), mask })
}
