//! A child process until its status is known: how its end is noticed, and how it is reaped and
//! signalled.
//!
//! A process that has not been reaped keeps its number. So as long as no other code reaps it, the
//! number is as safe as the pidfd, and a thread that waits for the end leaves the reaping to the
//! loop (`WNOWAIT`). The pidfd never refers to another process, even if other code reaps the child.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::pin::Pin;
use std::process::ExitStatus;
use std::task::{Context, Poll, ready};

use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, pidfd_open,
    pidfd_send_signal, waitid,
};

use super::orphan;
use crate::driver::registered::Registered;
use crate::driver::source::Direction;
use crate::sys::fork_check::Process;
use crate::task::{AbortsOnDrop, coop, spawn_without_signals};

/// A child whose status is not known yet. See the [module](self).
#[derive(Debug)]
pub(super) struct Running {
    pid: Pid,
    state: State,
    pub(super) kill_on_drop: bool,
    /// The process whose child it is.
    parent: Process,
}

#[derive(Debug)]
enum State {
    /// The loop's epoll reports the end.
    Watched(Registered<OwnedFd>),
    /// A thread waits for the end, after the first call that asks for it.
    Unwatched(Option<AbortsOnDrop<io::Result<()>>>),
    Reaped(ExitStatus),
    /// Other code has reaped the child.
    Lost,
}

impl Running {
    /// A child that this process, `parent`, has just started.
    pub(super) fn new(pid: u32, parent: Process) -> Self {
        let pid = Pid::from_raw(pid.cast_signed()).expect("a child has a number");
        let state = match pidfd_open(pid, PidfdFlags::empty()) {
            // Linux 5.3 has pidfds that `waitid` does not take.
            Ok(pidfd) if !is_taken_by_waitid(&pidfd) => State::Unwatched(None),
            Ok(pidfd) => match crate::net::register(pidfd) {
                Ok(pidfd) => State::Watched(pidfd),
                Err(_) => State::Unwatched(None),
            },
            // The child has ended, and the kernel keeps no zombies here.
            Err(Errno::SRCH) => State::Lost,
            Err(_) => State::Unwatched(None),
        };
        Self { pid, state, kill_on_drop: false, parent }
    }

    pub(super) fn id(&self) -> Option<u32> {
        let is_there = matches!(self.state, State::Watched(_) | State::Unwatched(_));
        is_there.then(|| self.pid.as_raw_pid().cast_unsigned())
    }

    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let id = match &self.state {
            State::Watched(pidfd) => WaitId::PidFd(pidfd.io().as_fd()),
            State::Unwatched(_) => WaitId::Pid(self.pid),
            State::Reaped(status) => return Ok(Some(*status)),
            State::Lost => return Err(lost()),
        };
        let reaped = reap(&id);
        self.note(reaped)
    }

    pub(super) fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ExitStatus>> {
        loop {
            match &mut self.state {
                // These also use up budget, because a task may ask again and again.
                State::Reaped(status) => {
                    ready!(coop::poll_proceed(cx));
                    coop::made_progress();
                    return Poll::Ready(Ok(*status));
                }
                State::Lost => {
                    ready!(coop::poll_proceed(cx));
                    coop::made_progress();
                    return Poll::Ready(Err(lost()));
                }
                State::Watched(pidfd) => {
                    ready!(coop::poll_proceed(cx));
                    let mut reaped = Ok(None);
                    ready!(pidfd.poll_io(Direction::Read, cx, |pidfd| {
                        reaped = reap(&WaitId::PidFd(pidfd.as_fd()));
                        if let Ok(None) = reaped { Err(Errno::AGAIN) } else { Ok(()) }
                    }))?;
                    coop::made_progress();
                    self.note(reaped)?;
                }
                State::Unwatched(thread) => {
                    let pid = self.pid;
                    let begin = || AbortsOnDrop(spawn_without_signals(move || ended(pid)));
                    let waits = thread.get_or_insert_with(begin);
                    let waited = ready!(Pin::new(waits).poll(cx));
                    *thread = None;
                    match waited {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => return Poll::Ready(Err(error)),
                        Err(error) => {
                            let why = format!("no thread can wait for the child: {error}");
                            return Poll::Ready(Err(io::Error::other(why)));
                        }
                    }
                    let reaped = reap(&WaitId::Pid(pid));
                    self.note(reaped)?;
                }
            }
        }
    }

    fn note(
        &mut self,
        reaped: Result<Option<ExitStatus>, Errno>,
    ) -> io::Result<Option<ExitStatus>> {
        match reaped {
            Ok(Some(status)) => self.state = State::Reaped(status),
            Err(Errno::CHILD) => {
                self.state = State::Lost;
                return Err(lost());
            }
            _ => {}
        }
        Ok(reaped?)
    }

    /// Sends a signal. It is no error if the child has ended.
    ///
    /// # Errors
    /// Kernel errors; this process is a fork of the parent.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        if self.parent.is_forked() {
            return Err(not_the_parent());
        }
        let sent = match &self.state {
            State::Watched(pidfd) => pidfd_send_signal(pidfd.io(), signal),
            State::Unwatched(_) if is_gone(self.pid) => Ok(()),
            State::Unwatched(_) => kill_process(self.pid, signal),
            State::Reaped(_) | State::Lost => Ok(()),
        };
        match sent {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A forked child must not kill it, because it is its parent's child.
        if self.id().is_none() || self.parent.is_forked() {
            return;
        }
        if self.kill_on_drop {
            // The kernel refuses this only for a child that runs as another user.
            let _ = self.signal(Signal::KILL);
        }
        if let Ok(None) = self.try_wait() {
            let state = std::mem::replace(&mut self.state, State::Lost);
            orphan::adopt(match state {
                State::Watched(pidfd) => orphan::Orphan::Pidfd(pidfd.into_inner()),
                _ => orphan::Orphan::Pid(self.pid),
            });
        }
    }
}

/// Reaps a child that has ended, and returns its status.
fn reap(id: &WaitId<'_>) -> Result<Option<ExitStatus>, Errno> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let ended = retry_on_intr(|| waitid(id.clone(), options))?;
    Ok(ended.as_ref().map(status_of))
}

/// Does no child of this process have this number? If SIGCHLD is ignored, the kernel may give the
/// number to another process as soon as the child has ended.
fn is_gone(pid: Pid) -> bool {
    matches!(look_at(&WaitId::Pid(pid)), Err(Errno::CHILD))
}

fn is_taken_by_waitid(pidfd: &OwnedFd) -> bool {
    matches!(look_at(&WaitId::PidFd(pidfd.as_fd())), Ok(_) | Err(Errno::CHILD))
}

/// Neither blocks nor reaps.
fn look_at(id: &WaitId<'_>) -> Result<Option<WaitIdStatus>, Errno> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    retry_on_intr(|| waitid(id.clone(), options))
}

/// Blocks until a child has ended.
fn ended(pid: Pid) -> io::Result<()> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    match retry_on_intr(|| waitid(WaitId::Pid(pid), options)) {
        // If the status is lost, the reaping that follows finds that out.
        Ok(_) | Err(Errno::CHILD) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Converts to the format of `waitpid(2)`.
fn status_of(ended: &WaitIdStatus) -> ExitStatus {
    let core = if ended.dumped() { 0x80 } else { 0 };
    let by_signal = ended.terminating_signal().map(|signal| signal | core);
    let by_itself = ended.exit_status().map(|code| (code & 0xff) << 8);
    ExitStatus::from_raw(by_signal.or(by_itself).unwrap_or(0))
}

fn not_the_parent() -> io::Error {
    io::Error::other(
        "this process is a fork of the child's parent: only the parent signals the child",
    )
}

fn lost() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        "the exit status of the child is lost: SIGCHLD is ignored (SIG_IGN, SA_NOCLDWAIT), or other \
         code of this process has waited for it",
    )
}

#[cfg(all(test, not(wakeful_loom), not(miri)))] // Miri has no processes.
mod tests {
    use super::*;
    use crate::block_on;

    #[test]
    fn a_fork_of_the_parent_does_not_signal_the_child() {
        block_on(async {
            let mut child = std::process::Command::new("sleep").arg("20").spawn().unwrap();
            let inherited = Running::new(child.id(), Process::of_parent());
            let refused = inherited.signal(Signal::KILL).unwrap_err();
            assert!(refused.to_string().contains("a fork"), "{refused}");
            drop(inherited);
            // The child would be dead by now, but its end may be noticed later.
            let own = Running::new(child.id(), Process::current().unwrap());
            own.signal(Signal::TERM).unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        });
    }
}
