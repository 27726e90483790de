//! How often threads ran, as `/proc` says: where events are refused.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use super::processes::threads;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Sampled {
    pid: i32,
}

impl Sampled {
    /// # Errors
    /// There is no such process.
    pub(super) fn of_process(pid: i32) -> io::Result<Self> {
        threads(pid).map(|_| Self { pid })
    }

    /// The stretches for which the threads that there are now have run: a stretch for each switch.
    /// Adds the CPUs on which they ran last. Two reads of some microseconds for each thread.
    pub(super) fn count(&self, used: &mut BTreeSet<usize>) -> u64 {
        let threads = threads(self.pid).unwrap_or_default();
        used.extend(threads.iter().filter_map(|tid| last_cpu(*tid)));
        threads.into_iter().filter_map(stretches).sum()
    }
}

/// The 39th field of `/proc/PID/stat`. The second one is a name in parentheses, which may have
/// spaces.
fn last_cpu(tid: i32) -> Option<usize> {
    let line = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    line.rsplit_once(')')?.1.split_whitespace().nth(36)?.parse().ok()
}

/// `/proc/PID/schedstat`: the time it ran, the time it waited, and how many stretches it ran.
fn stretches(tid: i32) -> Option<u64> {
    let line = fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    line.split_whitespace().nth(2)?.parse().ok()
}
