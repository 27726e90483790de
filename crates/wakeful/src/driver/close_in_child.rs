//! Closes what a forked child has inherited of its parent's connections.
//!
//! The child never drops the futures that own its copies of connections (see `task::local`). But as
//! long as the child has a copy, the peer does not learn that the parent has closed the connection.
//!
//! An owner may still exist, and close the descriptor's number later. So the number stays in use:
//! it becomes a socket that is not connected, on which each operation is an error.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::DupFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::mode::Mode;
use super::source::Source;

/// Closes the child's copies of these sockets, but not of a listener that other loops share: the
/// child may accept from it.
pub(super) fn close<'a>(sources: impl Iterator<Item = &'a Source>) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let Ok(nothing) = socket_with(family, kind, SocketFlags::CLOEXEC, None) else {
        // No descriptor is left for the socket. The child's copies stay open until it ends.
        return;
    };
    for source in sources.filter(|source| source.mode() == Mode::Edge) {
        // SAFETY: the descriptor is open while its source is registered. Nothing closes it here:
        // the number stays open, and its owner's.
        let mut fd = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(source.fd().as_raw_fd()) });
        let _ = rustix::io::dup3(&nothing, &mut fd, DupFlags::CLOEXEC);
    }
}
