//! Descriptors that one process passes to another one, which need not take them.
//!
//! A new master passes a copy of each socket that it makes to the old one. If the new one is
//! killed, its workers may still hold these sockets. Only a process that has a socket can stop it
//! from listening: with the copies the old master can.

use std::io::{Error, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use rustix::process::{Resource, getrlimit};
use wakeful::limits::explain_call_error;

/// How many descriptors one message carries. The kernel allows 253 (`SCM_MAX_FD`).
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
    all.chunks(AT_ONCE)
        .try_for_each(|some| send(end, &[1], some))
        .map_err(|error| explain_call_error("sendmsg")(error.into()))
}

/// Sends one message to the socket's peer, with copies of at most [`AT_ONCE`] descriptors.
///
/// # Errors
/// The kernel's.
pub(crate) fn send(
    socket: impl AsFd,
    message: &[u8],
    fds: &[BorrowedFd<'_>],
) -> std::result::Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Takes all that has been passed, and adds it to `all` in that order.
///
/// # Errors
/// The limit of descriptors is reached: some of the passed ones are lost, and `all` has the others.
/// Or the call is refused.
pub(crate) fn take(end: &OwnedFd, all: &mut Vec<OwnedFd>) -> Result<()> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let (byte, flags) = (&mut [IoSliceMut::new(&mut byte)], RecvFlags::CMSG_CLOEXEC);
        let message = match recvmsg(end, byte, &mut control, flags) {
            Ok(message) if message.bytes > 0 => message,
            // Nothing is left.
            Ok(_) | Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(explain_call_error("recvmsg")(error.into())),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                all.extend(some);
            }
        }
        if message.flags.contains(ReturnFlags::CTRUNC) {
            return Err(some_are_lost());
        }
    }
}

/// The kernel closes descriptors for which the process has no number left, and reports only that
/// there were some.
fn some_are_lost() -> Error {
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.map_or_else(String::new, |limit| format!(", {limit},"));
    Error::other(format!(
        "descriptors that another process passed are lost: this process's limit of open \
         descriptors{limit} is reached; raise RLIMIT_NOFILE (ulimit -n)"
    ))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::{env, fs};

    use rustix::fs::fstat;

    use super::*;
    use crate::memory_file;

    fn all_from(end: &OwnedFd) -> Vec<OwnedFd> {
        let mut all = Vec::new();
        take(end, &mut all).unwrap();
        all
    }

    #[test]
    fn what_a_process_has_passed_before_its_death_can_be_taken() {
        let (here, there) = ends().unwrap();
        let files: Vec<_> = (0..300).map(|_| memory_file::create("passed").unwrap()).collect();
        pass(&there, &files.iter().map(AsFd::as_fd).collect::<Vec<_>>()).unwrap();
        drop(there);
        let identity = |file: &OwnedFd| fstat(file).unwrap().st_ino;
        let taken: Vec<_> = all_from(&here).iter().map(identity).collect();
        assert_eq!(taken, files.iter().map(identity).collect::<Vec<_>>());
        assert!(all_from(&here).is_empty());
    }

    /// In a process of its own, which has the limit.
    #[test]
    fn a_limit_of_descriptors_is_named_and_none_that_came_stays_open() {
        const LIMITED: &str = "WAKEFUL_TEST_LIMITED";
        const MOST: usize = 40;
        if env::var_os(LIMITED).is_none() {
            let name =
                "passing::tests::a_limit_of_descriptors_is_named_and_none_that_came_stays_open";
            let mut limited = Command::new("prlimit");
            limited.arg(format!("--nofile={MOST}:{MOST}")).arg(env::current_exe().unwrap());
            limited.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(LIMITED, "");
            let output = limited.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
            return;
        }
        let count = || fs::read_dir("/proc/self/fd").unwrap().count();
        let (here, there) = ends().unwrap();
        let before = count();
        pass(&there, &[there.as_fd(); 2 * MOST]).unwrap();
        let mut all = Vec::new();
        let error = take(&here, &mut all).unwrap_err().to_string();
        assert!(error.contains("RLIMIT_NOFILE") && error.contains(", 40, is reached"), "{error}");
        assert!(!all.is_empty() && all.len() < MOST, "{}", all.len());
        drop(all);
        assert_eq!(count(), before);
        // The next ones come.
        pass(&there, &[there.as_fd(); 3]).unwrap();
        assert_eq!(all_from(&here).len(), 3);
    }

    #[test]
    fn nothing_is_taken_where_nothing_was_passed() {
        let (here, there) = ends().unwrap();
        assert!(all_from(&here).is_empty());
        drop(here);
        pass(&there, &[]).unwrap();
        // A process that another test starts has a copy of `here` until it executes its program.
        let since = std::time::Instant::now();
        while pass(&there, &[there.as_fd()]).is_ok() {
            assert!(since.elapsed() < std::time::Duration::from_secs(30), "it is passed to nobody");
        }
    }
}
