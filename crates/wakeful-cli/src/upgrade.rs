//! `wakeful upgrade`: asks a master to hand over to a new one, and says how that ended.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use procfs::ProcResult;
use procfs::process::{Process, Stat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use wakeful_workers::SUCCEEDS;

use crate::logging::say;

/// How often it looks.
const AGAIN: Duration = Duration::from_millis(20);
/// In bytes: what is longer is no pid file.
const LONGEST: u64 = 64;
/// How long a master may take to start its successor.
const TO_BEGIN: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 if the workers of the new master accept; 1 if the upgrade failed. Then the old \
                  master and its workers continue, and their log says why."
)]
pub(crate) struct Arguments {
    /// The pid file of the server (`wakeful serve --workers N --pid-file FILE`), or the process id
    /// of its master. With a process id, or a file that somebody else has written, this command
    /// waits until the old master has ended.
    #[arg(value_name = "FILE|PID")]
    master: String,
}

/// # Errors
/// A line for the user.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let master = Master::find(&arguments.master)?;
    let process = Pid::from_raw(master.pid).ok_or("0 is no process id of a master")?;
    let pidfd = pidfd_open(process, PidfdFlags::empty())
        .map_err(|error| format!("no master runs as process {}: {error}", master.pid))?;
    if !is_blocked(master.pid, Signal::USR2) {
        // It would end by it.
        return Err(format!(
            "process {} is no master that runs (`wakeful serve --workers`)",
            master.pid
        ));
    }
    let left_behind = told_that_they_succeed(master.own);
    pidfd_send_signal(&pidfd, Signal::USR2)
        .map_err(|error| format!("cannot send USR2 to process {}: {error}", master.pid))?;
    let successor = master.successor(&left_behind)?;
    say(format_args!("process {successor}, the new master, starts"));
    loop {
        if master.is_followed_by(successor) {
            say(format_args!("process {successor} has taken over: the upgrade is complete"));
            return Ok(ExitCode::SUCCESS);
        }
        if !is_there(successor) {
            return Err(format!(
                "the upgrade failed: process {successor}, the new master, has ended; the log of process {} says why",
                master.pid
            ));
        }
        thread::sleep(AGAIN);
    }
}

struct Master {
    pid: i32,
    /// Its number in its own PID namespace, as in a container. Its successor is told that one.
    own: i32,
    file: Option<PathBuf>,
}

impl Master {
    fn find(text: &str) -> Result<Self, String> {
        if let Ok(pid) = text.parse() {
            return Ok(Self { pid, own: own_number(pid), file: None });
        }
        let path = Path::new(text);
        let named = number_in(path)
            .map_err(|error| format!("{text}: expected a pid file or a process id: {error}"))?;
        let pid = named.ok_or_else(|| format!("{text}: there is no process id in this file"))?;
        // What is no file, as a FIFO, cannot be read again.
        Ok(Self { pid, own: own_number(pid), file: path.is_file().then(|| path.to_owned()) })
    }

    /// The process that it has started as its successor. It is none of those that an earlier one,
    /// which failed, has left behind.
    fn successor(&self, left_behind: &BTreeSet<i32>) -> Result<i32, String> {
        let start = Instant::now();
        while start.elapsed() < TO_BEGIN {
            let was_there = is_there(self.pid);
            let told = told_that_they_succeed(self.own);
            // The successor's workers have its environment, too, and so has whatever it has left
            // behind if it has failed by now: those are not this master's own children.
            let is_it = |pid: &&i32| {
                stat(**pid).is_ok_and(|stat| match is_there(self.pid) {
                    true => stat.ppid == self.pid,
                    false => !told.contains(&stat.ppid),
                })
            };
            if let Some(successor) = told.difference(left_behind).find(is_it) {
                return Ok(*successor);
            }
            if !was_there {
                return Err(format!("process {} has ended: was it a master?", self.pid));
            }
            thread::sleep(AGAIN);
        }
        Err(format!("process {} has started no new master within 10 s; its log says why", self.pid))
    }

    /// The master writes its file, if it has one, before the old one drains.
    fn is_followed_by(&self, successor: i32) -> bool {
        let names = |file: &PathBuf| number_in(file).is_ok_and(|pid| pid == Some(successor));
        self.file.as_ref().is_some_and(names) || (!is_there(self.pid) && is_there(successor))
    }
}

/// The process that a file names.
fn number_in(path: &Path) -> io::Result<Option<i32>> {
    let mut text = String::new();
    File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(text.trim().parse().ok())
}

fn is_there(pid: i32) -> bool {
    stat(pid).is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// A master reads its signals, and has them blocked. (`stat` has the first 31 signals.)
fn is_blocked(pid: i32, signal: Signal) -> bool {
    stat(pid).is_ok_and(|stat| stat.blocked & (1 << (signal.as_raw() - 1)) != 0)
}

fn stat(pid: i32) -> ProcResult<Stat> {
    Process::new(pid)?.stat()
}

/// The number by which a process knows itself. (The kernel lists its numbers from this namespace
/// on.)
fn own_number(pid: i32) -> i32 {
    let status = Process::new(pid).and_then(|process| process.status());
    status.ok().and_then(|status| status.nspid?.last().copied()).unwrap_or(pid)
}

/// Whose environment says that they succeed this master.
fn told_that_they_succeed(master: i32) -> BTreeSet<i32> {
    let expected = format!("from {master}\n");
    let is_told = |process: &Process| {
        let told = process.environ().ok().and_then(|mut all| all.remove(OsStr::new(SUCCEEDS)));
        told.is_some_and(|told| told.as_bytes().starts_with(expected.as_bytes()))
    };
    let all = procfs::process::all_processes().into_iter().flatten().flatten();
    all.filter(is_told).map(|process| process.pid()).collect()
}
