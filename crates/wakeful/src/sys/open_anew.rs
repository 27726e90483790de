//! Opening what a descriptor refers to once more.

use std::io::IsTerminal;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, Stat, makedev, openat};

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

/// Is it a terminal that can be opened anew? Opening any other device once more may open another
/// device, or have an effect on it. A terminal that was hung up does not count.
pub(crate) fn is_terminal(fd: BorrowedFd<'_>, stat: &Stat) -> bool {
    // Opening `/dev/ptmx` makes a new terminal, and returns the keyboard's side of that.
    let maker = makedev(5, 2);
    fd.is_terminal() && stat.st_rdev != maker
}
