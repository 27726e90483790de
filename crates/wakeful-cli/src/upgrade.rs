//! `wakeful upgrade`: asks a master to hand over to a new one, and says how that ended.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::logging::say;

/// How often it looks.
const AGAIN: Duration = Duration::from_millis(20);
/// In bytes: what is longer is no pid file.
const LONGEST: u64 = 64;
/// How long a master may take to start its successor.
const TO_BEGIN: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 when the new master's workers accept; 1 when the upgrade failed, and the old master \
                  goes on. Its log says why."
)]
pub(crate) struct Arguments {
    /// The file of `wakeful serve --workers N --pid-file FILE`, or the master's process. With a
    /// process, or a file that somebody else has written, it ends when the old master has.
    #[arg(value_name = "FILE|PID")]
    master: String,
}

/// # Errors
/// A line for the user.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let master = Master::find(&arguments.master)?;
    let process = Pid::from_raw(master.pid).ok_or("0 is no process")?;
    let pidfd = pidfd_open(process, PidfdFlags::empty())
        .map_err(|error| format!("process {}: {error}", master.pid))?;
    if !is_blocked(master.pid, Signal::USR2) {
        // It would end by it.
        return Err(format!("process {} is no master that runs", master.pid));
    }
    pidfd_send_signal(&pidfd, Signal::USR2)
        .map_err(|error| format!("process {}: {error}", master.pid))?;
    let successor = master.successor()?;
    say(format_args!("process {successor} starts"));
    loop {
        if master.is_followed_by(successor) {
            say(format_args!("process {successor} has taken over"));
            return Ok(ExitCode::SUCCESS);
        }
        if !is_there(successor) {
            return Err(format!(
                "the upgrade failed: process {successor} has ended; the log of process {} says why",
                master.pid
            ));
        }
        thread::sleep(AGAIN);
    }
}

struct Master {
    pid: i32,
    file: Option<PathBuf>,
}

impl Master {
    fn find(text: &str) -> Result<Self, String> {
        if let Ok(pid) = text.parse() {
            return Ok(Self { pid, file: None });
        }
        let path = Path::new(text);
        let named = number_in(path).map_err(|error| format!("{text}: {error}"))?;
        let pid = named.ok_or_else(|| format!("{text} names no process"))?;
        // What is no file, as a FIFO, cannot be read again.
        Ok(Self { pid, file: path.is_file().then(|| path.to_owned()) })
    }

    /// The process that it has started as its successor.
    fn successor(&self) -> Result<i32, String> {
        let start = Instant::now();
        while start.elapsed() < TO_BEGIN {
            let was_there = is_there(self.pid);
            let told = told_that_they_succeed(self.pid);
            // The workers of the successor have its environment, too.
            let is_first =
                |pid: &&i32| stat(**pid).is_some_and(|stat| !told.contains(&stat.parent));
            if let Some(successor) = told.iter().find(is_first) {
                return Ok(*successor);
            }
            if !was_there {
                return Err(format!("process {} has ended: was it a master?", self.pid));
            }
            thread::sleep(AGAIN);
        }
        Err(format!("process {} starts no successor; its log says why", self.pid))
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
    stat(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// A master reads its signals, and has them blocked.
fn is_blocked(pid: i32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal.as_raw() - 1)) != 0)
}

struct Stat {
    state: char,
    parent: i32,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may have any characters.
    let mut fields = text.rsplit(')').next()?.split_whitespace();
    Some(Stat { state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
}

/// Whose environment says that they succeed this master.
fn told_that_they_succeed(master: i32) -> BTreeSet<i32> {
    let expected = format!("{}=from {master}\n", wakeful_workers::SUCCEEDS);
    let is_told = |pid: &i32| {
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
            environment.split(|byte| *byte == 0).any(|one| one.starts_with(expected.as_bytes()))
        })
    };
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|one| one.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).filter(is_told).collect()
}
