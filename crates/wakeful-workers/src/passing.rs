//! Descriptors that one process passes to another one, which need not take them.
//!
//! A new master passes a copy of each socket that it makes to the old one. If the new one is
//! killed, its workers may still hold these sockets. Only a process that has a socket can stop it
//! from listening: with the copies the old master can.

use std::io::{IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use wakeful::limits::explain_call_error;

/// In one message. The kernel takes 253 (`SCM_MAX_FD`).
const AT_ONCE: usize = 128;

/// Two connected ends. What a process passes at one of them can be taken at the other one, even if
/// that process is dead by then.
///
/// # Errors
/// No descriptors left.
pub(crate) fn ends() -> Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let ends = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    ends.map_err(|error| explain_call_error("socketpair")(error.into()))
}

/// Passes copies of `all`. It does not wait until they are taken.
///
/// # Errors
/// The user's processes have more descriptors under way than RLIMIT_NOFILE; the other end is
/// closed; the call is refused.
pub(crate) fn pass(end: &OwnedFd, all: &[BorrowedFd<'_>]) -> Result<()> {
    for some in all.chunks(AT_ONCE) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(some));
        sendmsg(end, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL)
            .map_err(|error| explain_call_error("sendmsg")(error.into()))?;
    }
    Ok(())
}

/// Takes all that has been passed, in that order.
pub(crate) fn take(end: &OwnedFd) -> Vec<OwnedFd> {
    let mut all = Vec::new();
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let (byte, flags) = (&mut [IoSliceMut::new(&mut byte)], RecvFlags::CMSG_CLOEXEC);
        // Nothing is left, or this process has no descriptors left.
        if !recvmsg(end, byte, &mut control, flags).is_ok_and(|message| message.bytes > 0) {
            return all;
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                all.extend(some);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::fstat;

    use super::*;
    use crate::memory_file;

    #[test]
    fn what_a_process_has_passed_before_its_death_can_be_taken() {
        let (here, there) = ends().unwrap();
        let files: Vec<_> = (0..300).map(|_| memory_file::create("passed").unwrap()).collect();
        pass(&there, &files.iter().map(AsFd::as_fd).collect::<Vec<_>>()).unwrap();
        drop(there);
        let identity = |file: &OwnedFd| fstat(file).unwrap().st_ino;
        let taken: Vec<_> = take(&here).iter().map(identity).collect();
        assert_eq!(taken, files.iter().map(identity).collect::<Vec<_>>());
        assert!(take(&here).is_empty());
    }

    #[test]
    fn nothing_is_taken_where_nothing_was_passed() {
        let (here, there) = ends().unwrap();
        assert!(take(&here).is_empty());
        drop(here);
        pass(&there, &[]).unwrap();
        pass(&there, &[there.as_fd()]).unwrap_err();
    }
}
