//! Runs a command as if it ran alone: it gets its signals and what systemd passes, and its exit
//! code becomes this program's.

use std::env;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};
use signal_hook::consts::SIGCHLD;
use wakeful_awake::WatchError;

use super::relay::Relay;
use crate::logging::{self, say};

/// The exit codes of a shell for a command that does not exist, and for one that it may not run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

const SHELL: &str = "/bin/sh";

pub(super) fn run(
    command: Command,
    watch: impl FnOnce(Pid) -> Result<(), WatchError>,
) -> Result<ExitCode, String> {
    // From now on this program's signals go to the command.
    let relay = match Relay::start() {
        Ok(relay) => relay,
        // The command then replaces this program, so it has this process id and gets its signals
        // itself.
        Err(error) => {
            say(format_args!(
                "wakeful awake: no CPU is held for this command, because signals cannot be passed \
                 on to it: {error}"
            ));
            logging::flush();
            let mut command = command;
            let error = command.exec();
            return Ok(cannot_run(&command, &error));
        }
    };
    // If the parent process ignored this signal, a child that has ended would leave no exit code.
    let _ = signal_hook::flag::register(SIGCHLD, Arc::new(AtomicBool::new(false)));
    let mut command = as_addressee(command);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(cannot_run(&command, &error)),
    };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("no process id")?;
    if let Err(error) = relay.to(pid) {
        say(format_args!("wakeful awake: signals cannot be passed on to the command: {error}"));
    }
    let waiting = Waiting::begin(child, pid);
    if let Err(error) = watch(pid) {
        say(format_args!("wakeful awake: the command runs, but no CPU is held for it: {error}"));
    }
    let status = waiting.end();
    Ok(exit_code(status.map_err(|error| format!("waiting for the command: {error}"))?))
}

/// systemd's sockets (`LISTEN_FDS`) and its watchdog are meant for the process with a certain id:
/// this process, although the command should use them. The command's id is known only when it runs,
/// so a shell sets the variables, and then becomes the command.
fn as_addressee(command: Command) -> Command {
    let own = std::process::id().to_string();
    let is_own = |name: &&str| env::var(name).is_ok_and(|number| number == own);
    let names = ["LISTEN_PID", "WATCHDOG_PID"].into_iter().filter(is_own);
    let script: String = names.map(|name| format!("{name}=$$; ")).collect();
    if script.is_empty() || !Path::new(SHELL).exists() {
        return command;
    }
    let mut shell = Command::new(SHELL);
    shell.args(["-c", &format!("{script}exec \"$@\""), "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// How to wait for the command. The first process of a PID namespace, for example of a container,
/// must also wait for orphans when they end. A thread does that.
enum Waiting {
    ForIt(Child),
    ForAll(JoinHandle<io::Result<ExitStatus>>),
}

impl Waiting {
    fn begin(command: Child, pid: Pid) -> Self {
        if std::process::id() == 1 {
            let reaper = thread::Builder::new().name("reaper".to_owned());
            // If no thread can be started, orphans stay as zombies.
            if let Ok(reaper) = reaper.spawn(move || wait_for_all(pid)) {
                return Self::ForAll(reaper);
            }
        }
        Self::ForIt(command)
    }

    fn end(self) -> io::Result<ExitStatus> {
        match self {
            Self::ForIt(mut command) => command.wait(),
            Self::ForAll(reaper) => reaper.join().expect("it does not panic"),
        }
    }
}

/// Waits for all children until `command` has ended.
fn wait_for_all(command: Pid) -> io::Result<ExitStatus> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if ended == command => {
                return Ok(ExitStatus::from_raw(status.as_raw()));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn cannot_run(command: &Command, error: &io::Error) -> ExitCode {
    say(format_args!("wakeful: {}: {error}", command.get_program().display()));
    let is_there = error.kind() != io::ErrorKind::NotFound;
    ExitCode::from(if is_there { NOT_RUN } else { NOT_FOUND })
}

/// The exit code in a shell's form.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
