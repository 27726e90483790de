//! Descriptors that travel with the bytes of a Unix socket (`SCM_RIGHTS`).
//!
//! A receiver without enough free descriptors would lose the rest of them: the kernel closes those
//! that it cannot open. So the receiver peeks at the message first, and takes it only if it can
//! open all of the descriptors.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix};

use crate::sys::unix_message::{self, Leave, MOST_DESCRIPTORS, Message};

/// Whether a socket preserves the boundaries of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bytes,
    Messages,
}

/// # Errors
/// The kernel would refuse to send the message, or would lose the descriptors.
pub(super) fn check(kind: Kind, buf: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let why = if fds.len() > MOST_DESCRIPTORS {
        "at most 253 descriptors go with one message"
    } else if kind == Kind::Bytes && buf.is_empty() && !fds.is_empty() {
        "descriptors go with at least one byte of a stream"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Makes one attempt to send. The caller must have called [`check`] first.
pub(super) fn send(
    socket: &OwnedFd,
    buf: &[u8],
    fds: &[BorrowedFd<'_>],
    to: Option<&SocketAddrUnix>,
) -> Result<usize, Errno> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let (slices, flags) = ([io::IoSlice::new(buf)], SendFlags::NOSIGNAL);
    match to {
        Some(addr) => rustix::net::sendmsg_addr(socket, addr, &slices, &mut control, flags),
        None => rustix::net::sendmsg(socket, &slices, &mut control, flags),
    }
}

/// Makes one attempt to receive, and adds the descriptors to `fds`. After an error, nothing was
/// taken from the socket and nothing was added.
pub(super) fn receive(
    socket: &OwnedFd,
    kind: Kind,
    buf: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> Result<Message, Errno> {
    let before = fds.len();
    let received = look_and_take(socket, kind, buf, fds, before);
    if received.is_err() {
        fds.truncate(before);
    }
    received
}

fn look_and_take(
    socket: &OwnedFd,
    kind: Kind,
    buf: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    before: usize,
) -> Result<Message, Errno> {
    let seen = unix_message::receive(socket.as_fd(), buf, Some(fds), Leave::Message)?;
    if seen.is_cut {
        return Err(why_cut(socket));
    }
    let length = match kind {
        // This is the end of the stream.
        Kind::Bytes if seen.count == 0 => return Ok(seen),
        // Takes exactly the bytes that were seen, because bytes that have come since may have
        // descriptors.
        Kind::Bytes => seen.count,
        Kind::Messages => buf.len(),
    };
    if kind == Kind::Bytes && seen.count == buf.len() && fds.len() > before {
        return take_full(socket, buf, fds, before);
    }
    // This receives without room for descriptors, so the kernel closes its own copies. The caller
    // has the peeked ones.
    unix_message::receive(socket.as_fd(), &mut buf[..length], None, Leave::Nothing)
}

/// Takes the bytes of a stream that fill `buf`, and keeps the descriptors that were peeked only if
/// they came with these bytes. (A peek that has filled its buffer goes on to the next descriptors
/// in the socket, but takes none of their bytes: `unix_stream_read_generic` in Linux.)
#[cold]
fn take_full(
    socket: &OwnedFd,
    buf: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    before: usize,
) -> Result<Message, Errno> {
    let mut taken = Vec::new();
    let message = unix_message::receive(socket.as_fd(), buf, Some(&mut taken), Leave::Nothing)?;
    // `is_cut` means that not all descriptors could be opened a second time. But there were some,
    // and they are the ones that the peek has.
    if taken.is_empty() && !message.is_cut {
        fds.truncate(before);
    }
    Ok(message)
}

/// Finds out why the kernel did not open the descriptors, although there was room for all of them.
#[cold]
fn why_cut(socket: &OwnedFd) -> Errno {
    match rustix::io::fcntl_dupfd_cloexec(socket, 0) {
        Err(limit) => limit,
        // Another descriptor can be opened, so the passed one was refused, for example by a
        // security module.
        Ok(_) => Errno::ACCESS,
    }
}
