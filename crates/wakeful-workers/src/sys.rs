//! System calls without a safe wrapper: a fork, descriptors that come as numbers, changes of the
//! environment and of signal actions, and socket options. Also a look at one descriptor.

use std::env;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::ForkResult;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, FdFlags, ioctl_fionbio};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, WaitOptions, WaitStatus, kill_process, pidfd_open, pidfd_send_signal, waitpid,
};
use wakeful::limits::explain_call_error;

/// In the parent it returns the child, and in the child `None`.
///
/// # Errors
/// The process has several threads; the kernel's: a limit of processes, no memory.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    is_single_threaded()?;
    // SAFETY: the process has one thread, this one, so nothing that another one holds (a lock, a
    // half-changed value) is copied.
    match unsafe { nix::unistd::fork() }.map_err(|error| explain_fork(error.into()))? {
        ForkResult::Parent { child } => Ok(Pid::from_raw(child.as_raw())),
        ForkResult::Child => Ok(None),
    }
}

/// Ends this process without what its parent has registered for the end.
pub(crate) fn exit_now() -> ! {
    // SAFETY: nothing of this process is used any more.
    unsafe { libc::_exit(0) }
}

/// The kernel says the same (EAGAIN) of each limit of processes.
pub(crate) fn explain_fork(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) {
        let text = format!(
            "{error}: a limit of processes is reached. Raise RLIMIT_NPROC (ulimit -u), pids.max of \
             the cgroup (TasksMax of systemd) or kernel.pid_max, or end other processes"
        );
        return io::Error::new(error.kind(), text);
    }
    explain_call_error("clone")(error)
}

/// Returns a pidfd of a child that has not been waited for.
///
/// # Errors
/// No descriptors are left, or the call is refused.
pub(crate) fn pidfd_of(child: Pid) -> io::Result<OwnedFd> {
    let pidfd = pidfd_open(child, PidfdFlags::empty());
    pidfd.map_err(|error| explain_call_error("pidfd_open")(error.into()))
}

/// # Errors
/// No descriptors left.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|error| explain_call_error("pipe2")(error.into()))
}

/// A descriptor by which one process wakes others. It does not block.
///
/// # Errors
/// No descriptors left.
pub(crate) fn bell() -> io::Result<OwnedFd> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    bell.map_err(|error| explain_call_error("eventfd2")(error.into()))
}

/// # Errors
/// No descriptors left.
pub(crate) fn duplicate(fd: impl AsFd) -> io::Result<OwnedFd> {
    fd.as_fd().try_clone_to_owned().map_err(explain_call_error("fcntl"))
}

/// Like [`duplicate`], but for a program that this one starts: the descriptor is not close-on-exec.
///
/// # Errors
/// No descriptors left.
pub(crate) fn duplicate_to_pass(fd: impl AsFd) -> io::Result<OwnedFd> {
    rustix::io::dup(fd).map_err(|error| explain_call_error("dup")(error.into()))
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
        log!(
            error,
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

/// These signals do nothing, in this process and in the program that it executes, until they are
/// caught.
///
/// # Errors
/// None that the kernel documents.
pub(crate) fn ignore(signals: &[Signal]) -> io::Result<()> {
    for name in signals {
        // SAFETY: to ignore a signal runs no code of this process.
        unsafe { signal(*name, SigHandler::SigIgn) }?;
    }
    Ok(())
}

/// Removes a variable of the environment.
///
/// # Errors
/// The process has several threads.
pub(crate) fn forget_variable(name: &str) -> io::Result<()> {
    is_single_threaded()?;
    // SAFETY: the process has one thread, this one, so no other one reads the environment.
    unsafe { env::remove_var(name) };
    Ok(())
}

/// Takes descriptors that were passed to this program, by their numbers. `None`: one of them was
/// taken before, so it may have an owner.
///
/// # Errors
/// One of them is not open.
pub(crate) fn take_descriptors(numbers: &[RawFd]) -> io::Result<Option<Vec<OwnedFd>>> {
    static TAKEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    for number in numbers {
        if taken.contains(number) {
            return Ok(None);
        }
        taken.push(*number);
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
        // It came with the program, so nothing here has opened it and owns it, and it is taken
        // once.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    };
    numbers.iter().map(take).collect::<io::Result<_>>().map(Some)
}

/// Makes a pipe by which a process reports that it accepts: by a byte. The reading end does not
/// block.
///
/// # Errors
/// No descriptors left.
pub(crate) fn pipe_of_news() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ready, told) = pipe()?;
    ioctl_fionbio(&ready, true).map_err(|error| explain_call_error("ioctl")(error.into()))?;
    Ok((ready, told))
}

/// What has come through such a pipe.
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
    /// The child is dead, but a debugger still holds it, so `waitpid` would block.
    Held,
}

/// Has the child ended? `true` also if the kernel cannot be asked.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    is_dead(pidfd) != Ok(false)
}

/// An error means that the limit of descriptors was lowered to 0.
fn is_dead(pidfd: &OwnedFd) -> Result<bool, Errno> {
    let mut fd = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fd, Some(&Timespec::default())).map(|ready| ready > 0)
}

/// How the child has ended. `None`: it is not dead.
pub(crate) fn end_of(child: Pid, pidfd: &OwnedFd) -> Option<End> {
    let is_dead = is_dead(pidfd);
    if is_dead == Ok(false) {
        return None;
    }
    match waitpid(Some(child), WaitOptions::NOHANG) {
        Ok(Some((_, status))) => Some(End::As(status)),
        _ => (is_dead == Ok(true)).then_some(End::Held),
    }
}

/// Makes `program` (see `steering.rs`) choose among all sockets on the port of this one.
///
/// # Errors
/// Kernel errors: the kernel has no such programs, or this process may not use them.
pub(crate) fn steer(socket: impl AsFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the option's value is a program, and the kernel only reads what `filter` points to,
    // during the call.
    unsafe { set_option(socket.as_fd(), of_socket(libc::SO_ATTACH_REUSEPORT_CBPF), &program) }
}

/// Makes the kernel choose by its hash again.
///
/// # Errors
/// A filter refuses the call (it is of Linux 5.3).
pub(crate) fn stop_steering(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: the kernel reads a number, and ignores it.
    match unsafe { set_option(socket.as_fd(), of_socket(libc::SO_DETACH_REUSEPORT_BPF), &0) } {
        // There was no program.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Undoes [`SharedListener::let_nobody_in`](wakeful::accept::SharedListener::let_nobody_in) for a
/// TCP socket.
///
/// # Errors
/// The kernel's.
pub(crate) fn let_in_again(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    // The least TTL, where filters are not permitted. One of the calls fails for a socket of IPv4.
    for option in [(libc::IPPROTO_IP, libc::IP_MINTTL), (libc::IPPROTO_IPV6, IPV6_MINHOPCOUNT)] {
        // SAFETY: the kernel reads a number.
        let _ = unsafe { set_option(socket, option, &0) };
    }
    // SAFETY: the kernel reads a number, and ignores it.
    match unsafe { set_option(socket, of_socket(libc::SO_DETACH_FILTER), &0) } {
        // There is none. A socket of MPTCP cannot have one.
        Err(error)
            if [io::ErrorKind::NotFound, io::ErrorKind::Unsupported].contains(&error.kind()) =>
        {
            Ok(())
        }
        result => result,
    }
}

/// `IPV6_MINHOPCOUNT` of linux/in6.h.
const IPV6_MINHOPCOUNT: libc::c_int = 73;

fn of_socket(option: libc::c_int) -> (libc::c_int, libc::c_int) {
    (libc::SOL_SOCKET, option)
}

/// # Safety
/// The option has a value of this type, all of whose pointers are good for the call.
unsafe fn set_option<T>(
    socket: BorrowedFd<'_>,
    (level, option): (libc::c_int, libc::c_int),
    value: &T,
) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the socket is open, and the value has that length. The caller keeps the rest.
    let result = unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The socket's `IP_MINTTL`.
#[cfg(test)]
pub(crate) fn least_ttl(socket: impl AsFd) -> libc::c_int {
    let (mut least, mut length) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the socket is open, and the kernel writes a number of this length.
    let result = unsafe {
        let value = (&raw mut least).cast();
        let socket = socket.as_fd().as_raw_fd();
        libc::getsockopt(socket, libc::IPPROTO_IP, libc::IP_MINTTL, value, &raw mut length)
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_processes_is_named() {
        let limit = explain_fork(Errno::AGAIN.into());
        assert!(limit.to_string().contains("ulimit -u"), "{limit}");
        let refused = explain_fork(Errno::PERM.into());
        assert!(refused.to_string().contains("the system call clone is refused"), "{refused}");
        let none = io::Error::from(Errno::NOENT);
        assert_eq!(explain_fork(none).raw_os_error(), Some(Errno::NOENT.raw_os_error()));
    }
}
