//! The process at the other end of a Unix socket.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads `SO_PEERCRED`. (rustix cannot represent credentials without a pid, and a peer of another
/// pid namespace has none.)
///
/// # Errors
/// Kernel errors.
pub(crate) fn peer_cred(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut cred = MaybeUninit::<libc::ucred>::zeroed();
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes `length` bytes at most, which there are.
    let refused = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            cred.as_mut_ptr().cast(),
            &raw mut length,
        )
    } != 0;
    if refused {
        return Err(super::limits::explain_error(io::Error::last_os_error()));
    }
    // SAFETY: three integers, which were 0 before.
    Ok(unsafe { cred.assume_init() })
}
