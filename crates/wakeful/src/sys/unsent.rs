//! What the kernel has not delivered yet.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// How many bytes were written to a stream socket and are not with the other end's kernel (TCP: not
/// acknowledged), or not read there (Unix).
pub(crate) fn unsent(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: for a socket it is SIOCOUTQ (tcp(7), unix(7)): the kernel writes an int, and nothing
    // else if it refuses.
    let refused = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } != 0;
    if refused { Err(io::Error::last_os_error()) } else { Ok(usize::try_from(bytes).unwrap_or(0)) }
}
