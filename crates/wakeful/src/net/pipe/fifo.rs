//! Opens an end of a FIFO, and checks that a descriptor is a pipe.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, openat};
use rustix::io::retry_on_intr;

use crate::sys::limits::explain;

/// Opens a FIFO. `access` is for reading, for writing, or both.
///
/// # Errors
/// Kernel errors; `path` is not a FIFO.
pub(super) fn open(path: &Path, access: OFlags) -> io::Result<OwnedFd> {
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = match retry_on_intr(|| openat(CWD, path, flags, Mode::empty())) {
        Ok(fd) => fd,
        // The error keeps its number, because a caller that waits for a reader checks for it.
        Err(error @ rustix::io::Errno::NXIO) => return Err(error.into()),
        Err(error) => return Err(explain(error)),
    };
    expect_pipe(&fd)?;
    Ok(fd)
}

/// # Errors
/// The descriptor is not a pipe.
pub(super) fn expect_pipe(fd: impl AsFd) -> io::Result<()> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
    if kind == FileType::Fifo {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "this is neither a pipe nor a FIFO"))
}

/// Sets or clears `O_NONBLOCK` for all processes that share the open file.
pub(super) fn set_nonblocking(fd: impl AsFd, nonblocking: bool) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    if flags.contains(OFlags::NONBLOCK) != nonblocking {
        let mut new = flags;
        new.set(OFlags::NONBLOCK, nonblocking);
        rustix::fs::fcntl_setfl(&fd, new)?;
    }
    Ok(())
}
