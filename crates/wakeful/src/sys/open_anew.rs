//! Opening what a descriptor refers to once more.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat};

/// Opens a pipe or a terminal once more, without blocking. The open file is then ours alone, and so
/// are its flags.
///
/// # Errors
/// There is no `/proc`, it belongs to another user, or no descriptors are left. `NXIO`: nobody has
/// a FIFO open that is opened to write.
pub(crate) fn open_anew(fd: BorrowedFd<'_>, access: OFlags) -> rustix::io::Result<OwnedFd> {
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    openat(CWD, name, flags, Mode::empty())
}
