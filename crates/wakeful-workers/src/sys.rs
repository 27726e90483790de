//! System calls: a fork and a descriptor that comes as a number, for which there is no safe call,
//! and a look at one descriptor.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::ForkResult;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, ioctl_fionbio};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, WaitStatus, kill_process, pidfd_send_signal, waitpid};

/// In the parent it returns the child, and in the child `None`.
///
/// # Errors
/// The process has several threads; the kernel's: a limit of processes, no memory.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    is_single_threaded()?;
    // SAFETY: the process has one thread, this one, so nothing that another one holds (a lock, a
    // half-changed value) is copied.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Pid::from_raw(child.as_raw())),
        ForkResult::Child => Ok(None),
    }
}

/// Sends a signal to a child that has not been waited for, so that `pid` is its own. Where kill(2)
/// is refused, it tries the child's pidfd: a seccomp filter may forbid the one and not the other.
/// It logs what is refused; the child then continues as before. Returns whether it was sent.
pub(crate) fn signal_child(
    pid: Pid,
    pidfd: Option<BorrowedFd<'_>>,
    name: rustix::process::Signal,
) -> bool {
    let by_pidfd = |refused| {
        let pidfd = pidfd.ok_or(refused)?;
        pidfd_send_signal(pidfd, name).map_err(|_| refused)
    };
    let sent = kill_process(pid, name).or_else(by_pidfd);
    if let Err(error) = &sent {
        let (pid, error) = (pid.as_raw_pid(), io::Error::from(*error));
        let name = Signal::try_from(name.as_raw()).map_or("a signal", Signal::as_str);
        tracing::error!(
            "cannot send {name} to process {pid} (kill: {error}; does a seccomp filter refuse it?): \
             it continues, and so does this master"
        );
    }
    sent.is_ok()
}

/// # Errors
/// The process has several threads. (Where /proc does not say, it has one.)
pub(crate) fn is_single_threaded() -> io::Result<()> {
    match fs::read_dir("/proc/self/task").map_or(1, Iterator::count) {
        0 | 1 => Ok(()),
        threads => Err(io::Error::other(format!(
            "a master must not start a thread, and this process has {threads}"
        ))),
    }
}

/// Whoever started this process may have had SIGCHLD ignored, which it inherits. The kernel would
/// then neither tell of a child nor keep how it ended.
///
/// # Errors
/// None that the kernel documents.
pub(crate) fn hear_of_children() -> io::Result<()> {
    // SAFETY: the default action is no code of this process.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    Ok(())
}

/// Takes descriptors that were passed to this program, by their numbers. `None`: it is not the
/// first call, so they may have an owner.
///
/// # Errors
/// One of them is not open.
pub(crate) fn take_descriptors(numbers: &[RawFd]) -> io::Result<Option<Vec<OwnedFd>>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(None);
    }
    let take = |&number: &RawFd| {
        if number <= 2 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the number is not -1, and is used for one call, which a number that is not open
        // fails.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
        // SAFETY: it is open, and whoever started this program has passed it on for this purpose.
        // It was not close-on-exec, unlike every descriptor that Rust's libraries open, so it has
        // no owner here; and it is taken once.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    };
    numbers.iter().map(take).collect::<io::Result<_>>().map(Some)
}

/// A pipe by which a process says that it accepts: by a byte. What is read does not block.
///
/// # Errors
/// No descriptors left.
pub(crate) fn pipe_of_news() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ready, told) = pipe_with(PipeFlags::CLOEXEC)?;
    ioctl_fionbio(&ready, true)?;
    Ok((ready, told))
}

/// What has come by such a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    NotYet,
    Accepts,
    End,
}

pub(crate) fn news(ready: &OwnedFd) -> News {
    match rustix::io::read(ready, &mut [0]) {
        Ok(1) => News::Accepts,
        Err(Errno::AGAIN | Errno::INTR) => News::NotYet,
        _ => News::End,
    }
}

/// How a child has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    As(WaitStatus),
    /// It is dead, and waits for a debugger to let go of it: `waitpid` would block.
    Held,
}

/// `None`: it is not dead.
pub(crate) fn end_of(child: Pid, pidfd: &OwnedFd) -> Option<End> {
    let mut fd = [PollFd::new(pidfd, PollFlags::IN)];
    // An error: a limit of descriptors was lowered to nothing.
    let is_dead = poll(&mut fd, Some(&Timespec::default())).map(|ready| ready > 0);
    if is_dead == Ok(false) {
        return None;
    }
    match waitpid(Some(child), WaitOptions::NOHANG) {
        Ok(Some((_, status))) => Some(End::As(status)),
        _ => (is_dead == Ok(true)).then_some(End::Held),
    }
}
