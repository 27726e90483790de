//! A command that runs as it would alone: with its signals, and its exit code as ours.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use wakeful_awake::WatchError;

use crate::logging::say;

const PASSED_ON: [i32; 8] = [SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];
/// What a shell says of a command that is not there, and of one that it may not run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

pub(super) fn run(
    mut command: Command,
    watch: impl FnOnce(Pid) -> Result<(), WatchError>,
) -> Result<ExitCode, String> {
    // Before the command runs: from then on they are for it.
    let signals = SignalsInfo::<WithOrigin>::new(PASSED_ON);
    let signals = signals.map_err(|error| format!("signals: {error}"))?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            say(format_args!("wakeful: {}: {error}", command.get_program().display()));
            let is_there = error.kind() != io::ErrorKind::NotFound;
            return Ok(ExitCode::from(if is_there { NOT_RUN } else { NOT_FOUND }));
        }
    };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("no process id")?;
    if let Err(error) = pass_on(signals, pid) {
        say(format_args!("wakeful awake: signals are not passed on: {error}"));
    }
    if let Err(error) = watch(pid) {
        say(format_args!("wakeful awake: the command runs as it would without: {error}"));
    }
    let status = child.wait().map_err(|error| format!("waiting for the command: {error}"))?;
    Ok(exit_code(status))
}

fn pass_on(mut signals: SignalsInfo<WithOrigin>, pid: Pid) -> io::Result<()> {
    // Never another process with the same number.
    let child = pidfd_open(pid, PidfdFlags::empty())?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for origin in signals.forever() {
            // A terminal has sent it to the command too.
            if matches!(origin.cause, Cause::Kernel) {
                continue;
            }
            let signal = Signal::from_named_raw(origin.signal);
            // It may have ended.
            let _ = signal.map(|signal| pidfd_send_signal(&child, signal));
        }
    })?;
    Ok(())
}

/// As a shell says it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
