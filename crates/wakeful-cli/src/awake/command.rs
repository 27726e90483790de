//! A command that runs as it would alone: with its signals, and its exit code as ours.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::Pid;
use signal_hook::consts::SIGCHLD;
use wakeful_awake::WatchError;

use super::relay::Relay;
use crate::logging::say;

/// What a shell says of a command that is not there, and of one that it may not run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

pub(super) fn run(
    mut command: Command,
    watch: impl FnOnce(Pid) -> Result<(), WatchError>,
) -> Result<ExitCode, String> {
    // From now on signals are for the command.
    let relay = match Relay::start() {
        Ok(relay) => relay,
        // It gets its signals itself then.
        Err(error) => {
            say(format_args!("wakeful awake: the command runs alone: no signals: {error}"));
            let error = command.exec();
            return Ok(cannot_run(&command, &error));
        }
    };
    // Where a parent ignores it, a child that has ended would leave no exit code.
    let _ = signal_hook::flag::register(SIGCHLD, Arc::new(AtomicBool::new(false)));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(cannot_run(&command, &error)),
    };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("no process id")?;
    if let Err(error) = relay.to(pid) {
        say(format_args!("wakeful awake: signals are not passed on: {error}"));
    }
    if let Err(error) = watch(pid) {
        say(format_args!("wakeful awake: the command runs as it would without: {error}"));
    }
    let status = child.wait().map_err(|error| format!("waiting for the command: {error}"))?;
    Ok(exit_code(status))
}

fn cannot_run(command: &Command, error: &io::Error) -> ExitCode {
    say(format_args!("wakeful: {}: {error}", command.get_program().display()));
    let is_there = error.kind() != io::ErrorKind::NotFound;
    ExitCode::from(if is_there { NOT_RUN } else { NOT_FOUND })
}

/// As a shell says it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
