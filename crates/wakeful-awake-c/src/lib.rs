//! [`wakeful_awake::enable`] for C. The header is `include/wakeful_awake.h`.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::catch_unwind;

use wakeful_awake::latency_device::OpenError;
use wakeful_awake::{CountError, HoldError, KeeperError, WatchError};

thread_local! {
    static ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// Keeps CPUs from halting while this process has traffic: see [`wakeful_awake::enable`]. Returns
/// 0, or an error number as in `errno.h`. After an error, [`wakeful_awake_error`] returns a text
/// that describes it. The call does not change `errno`.
///
/// # Threads
/// Any thread may call it, but no signal handler.
// SAFETY: no other library has this name.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_awake_enable() -> c_int {
    let errno = errno();
    // SAFETY: the address is this thread's own.
    let before = unsafe { *errno };
    let code = catch_unwind(enable).unwrap_or_else(|panic| {
        // The payload of the panic is forgotten, because its destructor may panic, too.
        std::mem::forget::<Box<dyn Any + Send>>(panic);
        libc::ENOTRECOVERABLE
    });
    // SAFETY: as above.
    unsafe { *errno = before };
    code
}

/// Returns the text of this thread's last error, in UTF-8 and with a zero byte at its end. The text
/// is empty after a success, and before the first call. It is valid until this thread calls
/// [`wakeful_awake_enable`] again, or ends. Never returns a null pointer.
// SAFETY: no other library has this name.
#[unsafe(no_mangle)]
pub extern "C" fn wakeful_awake_error() -> *const c_char {
    let text = catch_unwind(|| ERROR.try_with(|error| error.borrow().as_ptr()));
    // The thread is ending, and its text is already gone.
    text.ok().and_then(Result::ok).unwrap_or(c"".as_ptr())
}

fn enable() -> c_int {
    tell("it has panicked");
    match wakeful_awake::enable() {
        Ok(()) => {
            tell("");
            0
        }
        Err(error) => {
            tell(&error.to_string());
            code(&error)
        }
    }
}

/// Returns the number in `errno.h` for an error.
fn code(error: &WatchError) -> c_int {
    let (kind, other) = match error {
        WatchError::Hold(HoldError::Large(_)) => (libc::E2BIG, None),
        // Only of CPUs that were chosen, which cannot be done here.
        WatchError::Hold(HoldError::NoKeeper(_) | HoldError::KeeperOff) => (libc::ENOTCONN, None),
        WatchError::Hold(HoldError::Keeper(KeeperError::Permission(_))) => (libc::EACCES, None),
        WatchError::Hold(HoldError::Keeper(_)) => (libc::ENOTCONN, None),
        WatchError::Hold(HoldError::Open(error)) => match error {
            OpenError::Missing => (libc::ENOENT, None),
            OpenError::Permission | OpenError::Refused => (libc::EACCES, None),
            OpenError::Other(error) => (libc::EIO, Some(error)),
        },
        WatchError::Count(error) => match error {
            CountError::NoProcess(_) => (libc::ESRCH, None),
            CountError::NoCgroup(_, error) => (libc::EINVAL, Some(error)),
            CountError::Refused(_) => (libc::EACCES, None),
            CountError::Other(_, error) => (libc::EIO, Some(error)),
        },
        WatchError::Other(error) => (libc::EIO, Some(error)),
    };
    other.and_then(std::io::Error::raw_os_error).filter(|code| *code > 0).unwrap_or(kind)
}

fn tell(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    ERROR.with(|error| drop(error.replace(text)));
}

fn errno() -> *mut c_int {
    // SAFETY: it returns an address.
    unsafe { libc::__errno_location() }
}
