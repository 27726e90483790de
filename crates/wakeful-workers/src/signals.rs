//! The signals of a master. They are blocked and read from a descriptor: the master has no handler
//! that a forked worker would inherit.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use wakeful::limits::explain_call_error;

use crate::container::Place;
use crate::sys;

/// The request that a signal makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// A second one means: end at once.
    End,
    Replace,
    Reopen,
    Upgrade,
    More,
    Fewer,
    DrainWorkers,
    /// A child has ended, is stopped, or continues.
    LookAtChildren,
}

const REQUESTS: [(Signal, Request); 12] = [
    (Signal::SIGTERM, Request::End),
    (Signal::SIGINT, Request::End),
    (Signal::SIGQUIT, Request::End),
    (Signal::SIGPWR, Request::End),
    (Signal::SIGXCPU, Request::End),
    (Signal::SIGHUP, Request::Replace),
    (Signal::SIGUSR1, Request::Reopen),
    (Signal::SIGUSR2, Request::Upgrade),
    (Signal::SIGTTIN, Request::More),
    (Signal::SIGTTOU, Request::Fewer),
    (Signal::SIGWINCH, Request::DrainWorkers),
    (Signal::SIGCHLD, Request::LookAtChildren),
];

/// A terminal sends these signals to a process when it is resized, or when the process reads or
/// writes in the background. Such a signal has the kernel as its sender, and is no request.
const OF_TERMINALS: [Signal; 3] = [Signal::SIGTTIN, Signal::SIGTTOU, Signal::SIGWINCH];

#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    before: SigSet,
    master: u32,
    place: Place,
}

impl Signals {
    /// Blocks the signals. From now on they are only read here. A successor's signals are blocked
    /// from its first instruction on, because the master that has started it has blocked them. A
    /// master that is process 1 may have blocked TERM and INT, because until now the kernel would
    /// have discarded them. They end a worker, which is another process.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(is_successor: bool, place: Place) -> io::Result<Self> {
        let all: SigSet = REQUESTS.iter().map(|(signal, _)| *signal).collect();
        sys::hear_of_children()?;
        let mut before = all.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        if is_successor {
            REQUESTS.iter().for_each(|(signal, _)| before.remove(*signal));
        }
        let master = std::process::id();
        if master == 1 {
            [Signal::SIGTERM, Signal::SIGINT].into_iter().for_each(|signal| before.remove(signal));
        }
        let fd = SignalFd::with_flags(&all, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .map_err(|error| explain_call_error("signalfd4")(error.into()));
        let fd = fd.inspect_err(|_| {
            // This cannot fail with a mask that the kernel returned.
            let _ = before.thread_set_mask();
        })?;
        Ok(Self { fd, before, master, place })
    }

    /// The next signal that has come.
    pub(crate) fn next(&self) -> Option<(Signal, Request)> {
        loop {
            let info = self.fd.read_signal().ok().flatten()?;
            let is_it = |(signal, _): &(Signal, Request)| info.ssi_signo == *signal as u32;
            let found = REQUESTS.into_iter().find(is_it)?;
            let is_of_kernel = info.ssi_code > 0;
            if is_of_kernel && OF_TERMINALS.contains(&found.0) {
                continue;
            }
            if found.0 == Signal::SIGWINCH && self.place.is_outside(info.ssi_pid) {
                log!(
                    info,
                    "SIGWINCH from outside of the container: no effect, because `docker run` passes \
                     on those of its terminal. To drain the workers, send it from a process of the \
                     container"
                );
                continue;
            }
            return Some(found);
        }
    }
}

impl Drop for Signals {
    /// Restores the previous behaviour of the signals, after a master's end. A worker does so, too.
    fn drop(&mut self) {
        if std::process::id() == self.master {
            // Signals that were not read were meant for the master, which is ending.
            while self.next().is_some() {}
        }
        // This cannot fail with a mask that the kernel returned.
        let _ = self.before.thread_set_mask();
    }
}

/// The signals that would end a worker, though they are requests to its master. (TERM and INT drain
/// it, and XCPU is about its own CPU time.)
const OF_THE_MASTER: [Signal; 5] =
    [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGQUIT, Signal::SIGPWR];

/// Makes a worker survive signals that make requests to a master. A program that signals all
/// processes of a service or a terminal means the master, which tells its workers to drain. It also
/// sends them HUP so that files are reopened. Handlers that the program has registered for these
/// signals are still called.
///
/// TTIN and TTOU are ignored, which the programs that a worker executes inherit. With a handler, a
/// write to a terminal from the background would begin again without end, if the terminal does not
/// allow it (`stty tostop`).
pub(crate) fn survive_requests() {
    let caught = OF_THE_MASTER.into_iter().try_for_each(|signal| {
        signal_hook::flag::register(signal as i32, Arc::default()).map(drop)
    });
    if let Err(error) = caught.and(sys::ignore(&[Signal::SIGTTIN, Signal::SIGTTOU])) {
        log!(warn, %error, "cannot catch HUP, USR1, USR2, QUIT and PWR: they may end this worker");
    }
}

/// Like [`survive_requests`], for a program that this process executes, until the program catches
/// the signals.
///
/// # Errors
/// None that the kernel documents.
pub(crate) fn survive_requests_in_program() -> io::Result<()> {
    // Handlers do not survive an `exec`, but ignored signals stay ignored, as TTIN and TTOU do.
    sys::ignore(&OF_THE_MASTER)
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
