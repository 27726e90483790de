//! How much the kernel has not delivered yet.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How many bytes were written to a stream socket and have not reached the other end: with TCP, are
/// not acknowledged; with a Unix socket, are not read.
pub(crate) fn unsent(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: for a socket it is SIOCOUTQ (tcp(7), unix(7)): the kernel writes an int, and nothing
    // else if it refuses.
    let refused = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } != 0;
    if refused { Err(io::Error::last_os_error()) } else { Ok(usize::try_from(bytes).unwrap_or(0)) }
}

/// How many connections are in the backlog of a TCP listener. `None`: the kernel does not tell, for
/// example for a Unix socket.
pub(crate) fn unaccepted(listener: BorrowedFd<'_>) -> Option<u32> {
    // The kernel uses this field for the backlog of a listener (`tcp_get_info`, since Linux
    // 2.6.39).
    super::socket_options::tcp_info(listener).ok().map(|info| info.tcpi_unacked)
}

/// Is the backlog of this listener empty? `false` also if the kernel does not tell, and if the
/// listener is broken.
pub(crate) fn is_backlog_empty(listener: BorrowedFd<'_>) -> bool {
    let mut listener = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
    poll(&mut listener, Some(&Timespec::default())) == Ok(0)
}
