//! `wakeful upgrade`: asks a master to hand over to a new one, and says how that ended.

mod report;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use procfs::ProcResult;
use procfs::process::{Process, Stat};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use wakeful_workers::SUCCEEDS;

use self::report::{Ends, Report, Shows, writes_to};
use crate::logging::say;

/// How often it looks.
const AGAIN: Duration = Duration::from_millis(20);
/// In bytes: what is longer is no pid file.
const LONGEST: u64 = 64;
/// How long a master may take to start its successor.
const TO_BEGIN: Duration = Duration::from_secs(10);
/// How long it may take if it has waited for a dead child since it was asked. That child may have
/// been its successor, which ended before this command saw it, or a worker. And how long it may
/// take to have a child after it has read the signal: without memory, descriptors or processes it
/// never has one.
const AFTER_A_FAILURE: Duration = Duration::from_secs(2);
/// How long a new master whose old one has died may take to serve. A master ends when its workers
/// do not start in time, but another program may never do anything, and nobody is left to end it.
const ALONE: Duration = Duration::from_secs(120);

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 if the workers of the new master accept; 1 if the upgrade failed. Then the old \
                  master and its workers continue, and their log says why. If the old master dies during \
                  the upgrade, the exit code is 1 also if it is not known whether the new one serves."
)]
pub(crate) struct Arguments {
    /// The server's pid file (`wakeful serve --workers N --pid-file FILE`), or the process id of
    /// its master. With the pid file this command ends when the new workers accept, while the old
    /// ones may still drain. With a process id, or a file that another program has written, it
    /// waits until the old master has ended, after the drain.
    #[arg(value_name = "FILE|PID")]
    master: OsString,
}

/// # Errors
/// A line for the user.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let master = Master::find(&arguments.master)?;
    let process = Pid::from_raw(master.pid.max(0))
        .ok_or_else(|| format!("{} is not a process id", master.pid))?;
    let pidfd = pidfd_open(process, PidfdFlags::empty()).map_err(|error| match error {
        // The number of no process, or of a thread.
        Errno::SRCH | Errno::INVAL | Errno::NOENT => {
            format!("there is no running master with process id {}: {error}", master.pid)
        }
        _ => format!("cannot watch process {} (pidfd_open): {error}", master.pid),
    })?;
    if !is_blocked(master.pid, Signal::USR2) {
        // It would end by it.
        return Err(format!(
            "process {} is not a running master (`wakeful serve --workers`, or a program with \
             `wakeful_workers::Master`)",
            master.pid
        ));
    }
    if master.own == 1 {
        return Err(format!(
            "process {} is process 1 of a container, which would end with it: replace the container",
            master.pid
        ));
    }
    let before = Before::of(&master);
    if let Some(successor) = before.under_way {
        // The signal would have no effect, and that upgrade may be to another program.
        return Err(format!(
            "an upgrade of process {} is under way: process {successor} is its new master. Ask again \
             when that one has failed; if it has taken over, ask that one",
            master.pid
        ));
    }
    pidfd_send_signal(&pidfd, Signal::USR2).map_err(|error| match error {
        Errno::PERM => format!(
            "cannot send USR2 to process {}: {error}; run this as its user, or as root",
            master.pid
        ),
        _ => format!("cannot send USR2 to process {}: {error}", master.pid),
    })?;
    let successor = master.successor(&before)?;
    let report = Report::of(master.pid, successor, &before.writes_to);
    say(format_args!("process {successor}, the new master, starts"));
    master.wait_for(successor, &report)?;
    say(format_args!("process {successor} has taken over: the upgrade is complete"));
    Ok(ExitCode::SUCCESS)
}

/// What was there before the master was asked.
struct Before {
    /// The new master of an upgrade that somebody else has asked for.
    under_way: Option<i32>,
    left_behind: BTreeSet<i32>,
    faults: Option<u64>,
    children: Option<BTreeSet<u32>>,
    writes_to: Ends,
}

impl Before {
    fn of(master: &Master) -> Self {
        let left_behind = told_that_they_succeed(master.own);
        // What a failed one left behind is not the master's own child.
        let is_child = |pid: &&i32| stat(**pid).is_ok_and(|stat| stat.ppid == master.pid);
        let under_way = left_behind.iter().find(is_child).copied();
        let faults = faults_of_dead_children(master.pid);
        let writes_to = writes_to(master.pid).unwrap_or_default();
        Self { under_way, left_behind, faults, children: children(master.pid), writes_to }
    }
}

struct Master {
    pid: i32,
    /// Its number in its own PID namespace, as in a container. Its successor is told that one.
    own: i32,
    file: Option<PathBuf>,
}

impl Master {
    fn find(named: &OsStr) -> Result<Self, String> {
        if let Some(pid) = named.to_str().and_then(|text| text.parse().ok()) {
            return Ok(Self { pid, own: own_number(pid), file: None });
        }
        let (path, text) = (Path::new(named), named.display());
        let named = number_in(path)
            .map_err(|error| format!("{text}: expected a pid file or a process id: {error}"))?;
        let pid = named.ok_or_else(|| format!("{text}: there is no process id in this file"))?;
        Ok(Self { pid, own: own_number(pid), file: Some(path.to_owned()) })
    }

    /// The process that it has started as its successor. Processes that an earlier, failed
    /// successor has left do not count.
    fn successor(&self, before: &Before) -> Result<i32, String> {
        let start = Instant::now();
        let mut failure = None;
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
            if let Some(successor) = told.difference(&before.left_behind).find(is_it) {
                return Ok(*successor);
            }
            let has_failed = || {
                faults_of_dead_children(self.pid) != before.faults
                    || (!is_pending(self.pid, Signal::USR2) && !self.has_more_children(before))
            };
            failure = has_failed().then(|| failure.unwrap_or_else(Instant::now));
            if was_there && failure.is_some_and(|at: Instant| at.elapsed() >= AFTER_A_FAILURE) {
                return Err(format!(
                    "the upgrade failed: the new master has ended at once, or could not be \
                     started, or process {0} has refused; the log of process {0} says why",
                    self.pid
                ));
            }
            if !was_there {
                return Err(format!(
                    "process {} has ended without an upgrade: was it a master (`wakeful serve --workers`)?",
                    self.pid
                ));
            }
            thread::sleep(AGAIN);
        }
        Err(format!("process {} has started no new master within 10 s; its log says why", self.pid))
    }

    /// `false` only if that is known.
    fn has_more_children(&self, before: &Before) -> bool {
        match (children(self.pid), &before.children) {
            (Some(now), Some(before)) => !now.is_subset(before),
            _ => true,
        }
    }

    /// Waits until the successor serves, and until this master has ended, if it has no file.
    fn wait_for(&self, successor: i32, report: &Report) -> Result<(), String> {
        let pid = self.pid;
        // When this master had died, and the successor did not serve yet.
        let mut alone_since: Option<Instant> = None;
        loop {
            // Look at this before the report, which this master reads.
            let has_ended = !is_there(pid);
            if !is_there(successor) {
                let failed =
                    format!("the upgrade failed: process {successor}, the new master, has ended");
                return Err(match has_ended {
                    false => format!("{failed}; the log of process {pid} says why"),
                    true => format!(
                        "{failed}, and so has process {pid}, the old one: start the server again. \
                         The log says why"
                    ),
                });
            }
            if self.is_file_of(successor) {
                return Ok(());
            }
            if has_ended {
                let shows = report.look();
                // In the second case this master has read the report, and has drained.
                if shows == Shows::Accepts || (shows == Shows::Closed && alone_since.is_none()) {
                    return Ok(());
                }
                // The file may tell, if it is this master's own.
                let may_tell = shows == Shows::Nothing && self.file.is_some();
                let may_come = shows == Shows::NotYet || may_tell;
                if !may_come || alone_since.is_some_and(|since| since.elapsed() >= ALONE) {
                    return Err(format!(
                        "process {pid}, the old master, has died during the upgrade. It is not known \
                         whether process {successor}, the new one, serves: ask the server, or look \
                         into its log"
                    ));
                }
                alone_since.get_or_insert_with(|| {
                    say(format_args!(
                        "process {pid}, the old master, has died; waiting for process {successor}"
                    ));
                    Instant::now()
                });
            }
            thread::sleep(AGAIN);
        }
    }

    /// The master writes its file, if it has one, before the old one drains.
    fn is_file_of(&self, successor: i32) -> bool {
        let names = |file: &PathBuf| number_in(file).is_ok_and(|pid| pid == Some(successor));
        self.file.as_ref().is_some_and(names)
    }
}

/// The process that a file names. To open a FIFO, or to read it, would wait for a writer.
fn number_in(path: &Path) -> io::Result<Option<i32>> {
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("this is not a regular file"));
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
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

/// Has the process not read this signal yet?
fn is_pending(pid: i32, signal: Signal) -> bool {
    let status = Process::new(pid).and_then(|process| process.status());
    status.is_ok_and(|status| status.shdpnd & (1 << (signal.as_raw() - 1)) != 0)
}

/// `None`: the kernel does not say (CONFIG_PROC_CHILDREN).
fn children(pid: i32) -> Option<BTreeSet<u32>> {
    let tasks = Process::new(pid).and_then(|process| process.tasks()).ok()?;
    let children = tasks.map(|task| task?.children()).collect::<ProcResult<Vec<_>>>().ok()?;
    Some(children.into_iter().flatten().collect())
}

/// The page faults of all children that a process has waited for: more with each child that ends.
fn faults_of_dead_children(pid: i32) -> Option<u64> {
    stat(pid).ok().map(|stat| stat.cminflt)
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
