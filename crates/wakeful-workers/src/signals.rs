//! The signals of a master. They are blocked and read from a descriptor: the master has no handler
//! that a forked worker would inherit.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

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
}

const REQUESTS: [(Signal, Request); 11] = [
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
];

/// What a worker is told by signals, too. They stay blocked in it until its own code is ready for
/// them: one that comes earlier is not lost, and does not end it.
const OF_WORKERS: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGPWR,
    Signal::SIGXCPU,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// A terminal sends these to whoever it shows when it is resized, or when the background reads or
/// writes. Such a one has the kernel as its sender, and asks for nothing.
const OF_TERMINALS: [Signal; 3] = [Signal::SIGTTIN, Signal::SIGTTOU, Signal::SIGWINCH];

#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    /// From now on they are only read here.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new() -> io::Result<Self> {
        let all: SigSet = REQUESTS.iter().map(|(signal, _)| *signal).collect();
        let before = all.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let fd = SignalFd::with_flags(&all, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { fd, before })
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

    /// In a worker: those that are not for it do again what they did before.
    ///
    /// # Errors
    /// None that the kernel documents.
    pub(crate) fn into_worker(self) -> io::Result<()> {
        let mut mask = self.before;
        OF_WORKERS.into_iter().for_each(|signal| mask.add(signal));
        mask.thread_set_mask()?;
        Ok(())
    }
}

/// In a worker that handles its signals by now: they come to this thread.
pub(crate) fn let_through_in_worker() {
    let signals: SigSet = OF_WORKERS.into_iter().collect();
    // It has no error for a set that the kernel knows.
    let _ = signals.thread_unblock();
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
