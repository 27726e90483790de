//! A descriptor that is known by its number alone.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Returns another descriptor for what this process has open as `number`. It is close-on-exec.
///
/// # Errors
/// Nothing is open there, or no descriptor is left.
#[cfg_attr(not(feature = "internals"), allow(unreachable_pub))]
pub fn duplicate(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: `fcntl` touches no memory of ours. A number that is not open is an error.
    let new = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if new < 0 {
        return Err(super::limits::explain_error(io::Error::last_os_error()));
    }
    // SAFETY: it is new, so nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}
