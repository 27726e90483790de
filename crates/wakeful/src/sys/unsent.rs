//! What the kernel has not delivered yet.

use std::io;
use std::mem::MaybeUninit;
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

/// How many connections are in the backlog of a TCP listener. `None`: the kernel does not say, as
/// of Unix sockets.
pub(crate) fn unaccepted(listener: BorrowedFd<'_>) -> Option<u32> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    // SAFETY: the kernel writes `length` bytes at most, which there are.
    let refused = unsafe {
        libc::getsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    } != 0;
    // SAFETY: these are integers, and what an older kernel has not written is 0.
    let info = unsafe { info.assume_init() };
    // So the kernel uses this field of a listener (`tcp_get_info`, since Linux 2.6.39).
    (!refused).then_some(info.tcpi_unacked)
}
