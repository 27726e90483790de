//! The waits themselves.
//!
//! Those that may sleep are libc's own functions if they can be found, because these are
//! cancellation points: a thread that sleeps in one can be cancelled (pthreads(7)). They are looked
//! up when the library is loaded, since `dlsym` may not be called from a signal handler. Until
//! then, and for those that never sleep, the system calls are made directly. `errno` is what
//! libc sets.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::mem::transmute;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, c_long, c_void, epoll_event, nfds_t, pollfd, sigset_t, timespec};

// The libc crate does not have them for all C libraries. Both may unwind a cancelled thread.
unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

// The values of glibc and musl.
const CANCEL_DISABLE: c_int = 1;
const CANCEL_DEFERRED: c_int = 0;

/// The kernel's set of signals is the first 8 bytes of libc's.
const KERNEL_SIGSET: usize = 8;

type EpollWait = unsafe extern "C-unwind" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;
type Poll = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, c_int) -> c_int;
type EpollPwait =
    unsafe extern "C-unwind" fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
type EpollPwait2 = unsafe extern "C-unwind" fn(
    c_int,
    *mut epoll_event,
    c_int,
    *const timespec,
    *const sigset_t,
) -> c_int;
type Ppoll =
    unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;

/// Null before the functions are looked up, and if they are not found.
static EPOLL_WAIT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static POLL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static EPOLL_PWAIT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static EPOLL_PWAIT2: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static PPOLL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Looks up libc's functions.
pub(crate) fn look_up() {
    let next = |name: &CStr| {
        // SAFETY: it reads a string that ends with a zero.
        unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
    };
    for (name, at) in [
        (c"epoll_wait", &EPOLL_WAIT),
        (c"poll", &POLL),
        (c"epoll_pwait", &EPOLL_PWAIT),
        (c"epoll_pwait2", &EPOLL_PWAIT2),
        (c"ppoll", &PPOLL),
    ] {
        at.store(next(name), Ordering::Release);
    }
}

/// Calls `run` while this thread cannot be cancelled.
///
/// Returns `None` without a call if the thread may be cancelled at any instruction
/// (`PTHREAD_CANCEL_ASYNCHRONOUS`). Otherwise a cancellation that comes meanwhile would take effect
/// when it is permitted again, and in glibc 2.36 `pthread_join` then returns something other than
/// `PTHREAD_CANCELED`.
///
/// This costs two atomic operations. glibc's and musl's functions may be called in signal handlers.
#[inline]
pub(crate) fn without_cancellation<T>(run: impl FnOnce() -> T) -> Option<T> {
    let (mut kind, mut state) = (CANCEL_DEFERRED, CANCEL_DISABLE);
    // SAFETY: they write numbers. They fail only for wrong ones.
    unsafe {
        pthread_setcanceltype(CANCEL_DEFERRED, &raw mut kind);
        if kind != CANCEL_DEFERRED {
            pthread_setcanceltype(kind, &raw mut kind);
            return None;
        }
        pthread_setcancelstate(CANCEL_DISABLE, &raw mut state);
    }
    let ran = run();
    // SAFETY: as above.
    unsafe { pthread_setcancelstate(state, &raw mut state) };
    Some(ran)
}

/// # Safety
/// As for the function of libc.
pub(crate) unsafe fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    milliseconds: c_int,
) -> c_int {
    let real = EPOLL_WAIT.load(Ordering::Acquire);
    if real.is_null() {
        // SAFETY: the caller's.
        return unsafe { epoll_pwait_now(epoll, events, most, milliseconds, null()) };
    }
    // SAFETY: it is libc's function of this name, which has this type; the rest is the caller's.
    unsafe { transmute::<*mut c_void, EpollWait>(real)(epoll, events, most, milliseconds) }
}

/// # Safety
/// As for the function of libc.
pub(crate) unsafe fn poll(fds: *mut pollfd, count: nfds_t, milliseconds: c_int) -> c_int {
    let real = POLL.load(Ordering::Acquire);
    if real.is_null() {
        let timeout = u64::try_from(milliseconds).ok().map(|time| timespec {
            tv_sec: (time / 1000) as libc::time_t,
            tv_nsec: (time % 1000 * 1_000_000) as c_long,
        });
        // SAFETY: the caller's.
        return unsafe { ppoll_now(fds, count, timeout, null()) };
    }
    // SAFETY: it is libc's function of this name, which has this type; the rest is the caller's.
    unsafe { transmute::<*mut c_void, Poll>(real)(fds, count, milliseconds) }
}

/// # Safety
/// As for the function of libc.
pub(crate) unsafe fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    milliseconds: c_int,
    mask: *const sigset_t,
) -> c_int {
    let real = EPOLL_PWAIT.load(Ordering::Acquire);
    if real.is_null() {
        // SAFETY: the caller's.
        return unsafe { epoll_pwait_now(epoll, events, most, milliseconds, mask) };
    }
    // SAFETY: it is libc's function of this name, which has this type; the rest is the caller's.
    unsafe { transmute::<*mut c_void, EpollPwait>(real)(epoll, events, most, milliseconds, mask) }
}

/// The system call itself, which is no cancellation point.
///
/// # Safety
/// As for the function of libc.
pub(crate) unsafe fn epoll_pwait_now(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    milliseconds: c_int,
    mask: *const sigset_t,
) -> c_int {
    let call = libc::SYS_epoll_pwait;
    // SAFETY: the kernel checks all of it, and writes what the caller says that it may.
    narrow(unsafe { libc::syscall(call, epoll, events, most, milliseconds, mask, KERNEL_SIGSET) })
}

/// Whether [`epoll_pwait2`] is a cancellation point.
pub(crate) fn libc_has_epoll_pwait2() -> bool {
    !EPOLL_PWAIT2.load(Ordering::Acquire).is_null()
}

/// # Safety
/// As for the function of libc.
pub(crate) unsafe fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let real = EPOLL_PWAIT2.load(Ordering::Acquire);
    if real.is_null() {
        // SAFETY: the caller's.
        return unsafe { epoll_pwait2_now(epoll, events, most, timeout, mask) };
    }
    // SAFETY: it is libc's function of this name, which has this type; the rest is the caller's.
    unsafe { transmute::<*mut c_void, EpollPwait2>(real)(epoll, events, most, timeout, mask) }
}

/// The system call itself, which is no cancellation point.
///
/// # Safety
/// As for the function of libc.
pub(crate) unsafe fn epoll_pwait2_now(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let call = libc::SYS_epoll_pwait2;
    // SAFETY: the kernel checks all of it, and writes what the caller says that it may.
    narrow(unsafe { libc::syscall(call, epoll, events, most, timeout, mask, KERNEL_SIGSET) })
}

/// # Safety
/// As for the function of libc.
pub(crate) unsafe fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let real = PPOLL.load(Ordering::Acquire);
    if !real.is_null() {
        // SAFETY: it is libc's function of this name, which has this type; the rest is the
        // caller's.
        return unsafe { transmute::<*mut c_void, Ppoll>(real)(fds, count, timeout, mask) };
    }
    // The kernel writes what is left of it.
    // SAFETY: null or a time, says the caller.
    let left = unsafe { timeout.as_ref() }.copied();
    // SAFETY: the caller's.
    unsafe { ppoll_now(fds, count, left, mask) }
}

/// The system call itself, which is no cancellation point.
///
/// # Safety
/// As for the function of libc.
pub(crate) unsafe fn ppoll_now(
    fds: *mut pollfd,
    count: nfds_t,
    mut timeout: Option<timespec>,
    mask: *const sigset_t,
) -> c_int {
    let timeout = timeout.as_mut().map_or(null_mut(), |timeout| &raw mut *timeout);
    // SAFETY: the kernel checks all of it, and writes what the caller says that it may, and the
    // time.
    narrow(unsafe { libc::syscall(libc::SYS_ppoll, fds, count, timeout, mask, KERNEL_SIGSET) })
}

/// A count of descriptors, or -1.
fn narrow(returned: c_long) -> c_int {
    c_int::try_from(returned).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use rustix::event::epoll;

    use super::*;
    use crate::waits::{Epoll, Timeout, Wait};

    type Unwinding = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
    type Main = extern "C" fn(*mut c_void) -> *mut c_void;

    extern "C-unwind" fn sleeps(epoll: *mut c_void) -> *mut c_void {
        let mut event = epoll_event { events: 0, u64: 0 };
        let (events, timeout) = (&raw mut event, Timeout::Milliseconds(-1));
        let wait = Epoll { epoll: epoll as c_int, events, most: 1, timeout, mask: null() };
        let mut mask = MaybeUninit::uninit();
        // SAFETY: it writes a set of no signal.
        let none = unsafe {
            libc::sigemptyset(mask.as_mut_ptr());
            mask.assume_init()
        };
        let _ = wait.sleep(Some(Duration::from_secs(5)), &none);
        null_mut()
    }

    /// As with a glibc before 2.35.
    #[test]
    fn a_sleep_is_a_cancellation_point_where_libc_has_no_epoll_pwait2() {
        EPOLL_PWAIT2.store(null_mut(), Ordering::Release);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let (mut id, mut result) = (MaybeUninit::uninit(), null_mut());
        // SAFETY: the C library takes a function that a cancellation unwinds, whatever the libc
        // crate says. The thread is joined, and its frames have nothing to drop.
        unsafe {
            let main = transmute::<Unwinding, Main>(sleeps);
            let argument = epoll.as_raw_fd() as isize as *mut c_void;
            assert_eq!(libc::pthread_create(id.as_mut_ptr(), null(), main, argument), 0);
            assert_eq!(libc::pthread_cancel(id.assume_init()), 0);
            assert_eq!(libc::pthread_join(id.assume_init(), &raw mut result), 0);
        }
        assert_eq!(result as isize, -1, "PTHREAD_CANCELED");
        look_up();
    }
}
