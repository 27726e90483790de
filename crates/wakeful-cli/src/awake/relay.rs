//! Passes the signals of this program on to the command that it started.
//!
//! All signals that can be caught are passed on, except those that a fault raises, SIGCHLD, and the
//! real-time signals. A signal that was ignored when this program started stays ignored, here and
//! in the command (`nohup`, a shell's background job). The exception is SIGPIPE, for which the
//! standard library gives a command the default action.
//!
//! A signal that the kernel sends for a terminal usually goes to the command as well: Ctrl-C goes
//! to all processes of the foreground. So such signals are not passed on, except SIGHUP: if the
//! terminal hangs up, the kernel may tell only this program, as the leader of its session.
//!
//! After Ctrl-Z this program stops a moment later than the command, when it has released the CPUs.
//! It does not stop if the command goes on. A command may ignore or handle the signal. And the
//! kernel stops no process of an orphaned process group (setpgid(2)).
//!
//! Nor is SIGXCPU of the kernel passed on: this program has reached its limit of CPU time, and the
//! command has the same limit itself. But the command has not the alarm (alarm(2)) that this
//! program was started with, so SIGALRM is passed on.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open,
    pidfd_send_signal, waitid,
};
use signal_hook::consts::{
    SIGABRT, SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN,
    SIGTTOU, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};
use wakeful::limits::explain_call_error;

use crate::ignored_signals::IgnoredSignals;
use crate::registration::without_signals;

/// libc's number, which the crate's constants do not have.
const SIGPWR: i32 = Signal::POWER.as_raw();
const PASSED_ON: [i32; 19] = [
    SIGABRT, SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT, SIGTERM, SIGTSTP,
    SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGVTALRM, SIGWINCH, SIGXCPU, SIGXFSZ,
];
/// Signals that the kernel sends for a terminal, to the command as well.
const OF_TERMINAL: [i32; 7] = [SIGCONT, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGWINCH];
/// Signals that stop a process, unless it catches them.
const STOP: [i32; 3] = [SIGTSTP, SIGTTIN, SIGTTOU];
/// How long this program may take to release the CPUs after the command was stopped.
const LETS_GO: Duration = Duration::from_millis(600);

/// A thread that gets the signals. Until it knows the command, they wait.
#[derive(Debug)]
pub(super) struct Relay {
    sender: Sender<OwnedFd>,
    /// A descriptor like the command's, which takes its place.
    reserve: OwnedFd,
}

impl Relay {
    /// # Errors
    /// No thread can be started, signals cannot be caught, or no process can have a descriptor
    /// here, or a signal by it. Nothing has changed then.
    pub(super) fn start() -> io::Result<Self> {
        // Once the signals are caught, and the command runs, it is too late to find out that the
        // signals cannot be passed on: then neither process would get them.
        let reserve = pidfd_of(getpid())?;
        // Some filter may know one of the two calls only. This signal is ignored here.
        pidfd_send_signal(&reserve, Signal::URG)
            .map_err(|error| explain_call_error("pidfd_send_signal")(error.into()))?;
        let (sender, command) = mpsc::channel();
        let (caught, is_caught) = mpsc::channel();
        without_signals(&PASSED_ON, || {
            thread::Builder::new().name("signals".to_owned()).spawn(move || {
                let (signals, is_caught) = match catch() {
                    Ok(signals) => (Some(signals), Ok(())),
                    Err(error) => (None, Err(error)),
                };
                let _ = caught.send(is_caught);
                if let Some(signals) = signals {
                    pass_on(signals, &command);
                }
            })?;
            is_caught.recv().map_err(io::Error::other)?
        })?;
        // The parent process may have blocked them.
        wakeful::signal::unblock(&PASSED_ON)?;
        Ok(Self { sender, reserve })
    }

    /// # Errors
    /// The kernel has no memory for the descriptor of the command's process.
    pub(super) fn to(self, command: Pid) -> io::Result<()> {
        drop(self.reserve);
        self.sender.send(pidfd_of(command)?).map_err(io::Error::other)
    }
}

/// Returns a pidfd. With it the signals never go to another process with the same number.
fn pidfd_of(process: Pid) -> io::Result<OwnedFd> {
    let pidfd = pidfd_open(process, PidfdFlags::empty());
    pidfd.map_err(|error| explain_call_error("pidfd_open")(error.into()))
}

fn catch() -> io::Result<SignalsInfo<WithOrigin>> {
    let ignored = IgnoredSignals::read();
    SignalsInfo::new(PASSED_ON.into_iter().filter(|signal| !ignored.has(*signal)))
}

fn pass_on(mut signals: SignalsInfo<WithOrigin>, command: &Receiver<OwnedFd>) {
    let Ok(command) = command.recv() else { return };
    for origin in signals.forever() {
        if is_for_this_program(&origin) {
            if STOP.contains(&origin.signal) {
                thread::sleep(LETS_GO);
                // Here and not before the pause, in which it may have been continued.
                if is_stopped(&command) {
                    let _ = kill_process(getpid(), Signal::STOP);
                }
            }
            continue;
        }
        let signal = Signal::from_named_raw(origin.signal);
        // The command may have ended.
        let _ = signal.map(|signal| pidfd_send_signal(&command, signal));
    }
}

/// Is the command stopped? The wait for its end does not miss anything by this question. If the
/// kernel does not answer, the command counts as running, which would go on without a watcher.
fn is_stopped(command: &OwnedFd) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::PidFd(command.as_fd()), options), Ok(Some(status)) if status.stopped())
}

/// Does the command get this signal by itself, if it concerns the command?
fn is_for_this_program(origin: &Origin) -> bool {
    let signal = origin.signal;
    matches!(origin.cause, Cause::Kernel) && (OF_TERMINAL.contains(&signal) || signal == SIGXCPU)
}
