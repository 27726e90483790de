//! The CPU time of processes and of CPUs, from `/proc`.
//!
//! Readings are cumulative: only the difference of two readings has a meaning. A difference is
//! never negative.
//!
//! Unless the kernel counts interrupts separately (`CONFIG_IRQ_TIME_ACCOUNTING`), the time of a
//! thread includes the interrupts and softirqs that interrupted it, and those of its own packets
//! over loopback.

mod cpus;
mod processes;
mod tree;

use std::fs;
use std::io;
use std::path::Path;

use ::procfs::ProcError;
use ::procfs::process::{Process, Stat};

pub use cpus::{CpuTime, CpuTimes, tick};
pub use processes::{CpuUse, ProcessCpu};
pub use tree::{children_of, process_tree, threads_of};

/// The names in a directory that are numbers. There are none if the directory is gone.
pub(crate) fn numbers_in(path: impl AsRef<Path>) -> Vec<u32> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// What `/proc/PID/stat` says. `None` if the process is gone.
pub(crate) fn stat_of(pid: u32) -> io::Result<Option<Stat>> {
    match Process::new(pid.cast_signed()).and_then(|process| process.stat()) {
        Ok(stat) => Ok(Some(stat)),
        Err(ProcError::NotFound(_)) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Whether the process has ended. A zombie has, too. This reads one file, whatever the number of
/// the process's threads. If the kernel refuses to say, the process counts as running.
pub(crate) fn has_ended(pid: u32) -> bool {
    stat_of(pid).is_ok_and(|stat| stat.is_none_or(|stat| is_over(&stat)))
}

fn is_over(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X')
}

/// Reads a file. Returns `None` if the file is gone when it is opened, or if it belongs to a thread
/// that ended before it was read.
pub(crate) fn read_if_there(path: impl AsRef<Path>) -> io::Result<Option<String>> {
    match fs::read(path) {
        // Names of processes are bytes.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn gone(pid: u32) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("process {pid} is gone"))
}

fn unexpected(file: &str, text: &str) -> io::Error {
    let line = text.lines().next().unwrap_or_default();
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected {file} in /proc: {line:?}"))
}

/// Burns CPU until this thread has used `time`.
#[cfg(test)]
fn burn(time: std::time::Duration) {
    let used = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        std::time::Duration::try_from(now).unwrap()
    };
    let start = used();
    while used() - start < time {
        std::hint::spin_loop();
    }
}
