//! `errno`, as libc's functions leave it.
#![allow(unsafe_code)]

use libc::c_int;

/// The result of a system call: a count, or an error number.
pub(crate) type Answer = Result<c_int, c_int>;

pub(crate) fn get() -> c_int {
    // SAFETY: the address is this thread's own, and valid as long as the thread runs.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set(errno: c_int) {
    // SAFETY: as in `get`.
    unsafe { *libc::__errno_location() = errno };
}

/// Converts what a function with libc's convention has returned.
pub(crate) fn answer(returned: c_int) -> Answer {
    if returned < 0 { Err(get()) } else { Ok(returned) }
}

/// The inverse conversion. `before` was `errno` before the call, and it stays so after a success.
pub(crate) fn returned(answer: Answer, before: c_int) -> c_int {
    match answer {
        Ok(count) => {
            set(before);
            count
        }
        Err(errno) => {
            set(errno);
            -1
        }
    }
}
