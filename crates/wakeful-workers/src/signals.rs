//! The signals of a master. They are blocked and read from a descriptor: the master has no handler
//! that a forked worker would inherit.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};
use wakeful::limits::explain_call_error;

use crate::sys;

/// What a signal asks a master for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// Its second one is to end at once.
    End,
    Replace,
    Reopen,
    Upgrade,
    More,
    Fewer,
    DrainWorkers,
    /// A child has ended, or is stopped, or goes on.
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

/// A terminal sends these to whoever it shows when it is resized, or when the background reads or
/// writes. Such a one has the kernel as its sender, and asks for nothing.
const OF_TERMINALS: [Signal; 3] = [Signal::SIGTTIN, Signal::SIGTTOU, Signal::SIGWINCH];

#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    before: SigSet,
    master: u32,
}

impl Signals {
    /// From now on they are only read here. A successor's are blocked from its first instruction
    /// on, as they are in the master that has started it.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(is_successor: bool) -> io::Result<Self> {
        let all: SigSet = REQUESTS.iter().map(|(signal, _)| *signal).collect();
        sys::hear_of_children()?;
        let mut before = all.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        if is_successor {
            REQUESTS.iter().for_each(|(signal, _)| before.remove(*signal));
        }
        let fd = SignalFd::with_flags(&all, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .map_err(|error| explain_call_error("signalfd4")(error.into()));
        let fd = fd.inspect_err(|_| {
            // It has no error for a mask that the kernel gave.
            let _ = before.thread_set_mask();
        })?;
        Ok(Self { fd, before, master: std::process::id() })
    }

    /// The next one that has come.
    pub(crate) fn next(&self) -> Option<(Signal, Request)> {
        loop {
            let info = self.fd.read_signal().ok().flatten()?;
            let is_it = |(signal, _): &(Signal, Request)| info.ssi_signo == *signal as u32;
            let found = REQUESTS.into_iter().find(is_it)?;
            let is_of_kernel = info.ssi_code > 0;
            if !(is_of_kernel && OF_TERMINALS.contains(&found.0)) {
                return Some(found);
            }
        }
    }
}

impl Drop for Signals {
    /// They do again what they did before, in a worker and after a master's end.
    fn drop(&mut self) {
        if std::process::id() == self.master {
            // What was not read was for the master, which is at its end.
            while self.next().is_some() {}
        }
        // It has no error for a mask that the kernel gave.
        let _ = self.before.thread_set_mask();
    }
}

/// Signals that ask a master for something do not end its worker: whoever signals all processes of
/// a service or a terminal means the master, which also sends HUP so that files are opened anew.
/// Whoever handles them is called as before.
pub(crate) fn survive_requests() {
    let caught = [SIGHUP, SIGUSR1, SIGUSR2]
        .into_iter()
        .try_for_each(|signal| signal_hook::flag::register(signal, Arc::default()).map(drop));
    if let Err(error) = caught {
        tracing::warn!(%error, "cannot catch HUP: it would end this worker");
    }
}

/// As [`survive_requests`], for a program that this process executes, until that catches them.
///
/// # Errors
/// None that the kernel documents.
pub(crate) fn survive_requests_in_program() -> io::Result<()> {
    // Handlers do not survive it, and what is ignored stays so.
    sys::ignore(&[Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2])
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
