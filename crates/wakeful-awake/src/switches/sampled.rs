//! How often threads ran, as `/proc` says: where events are refused.

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
    /// A read of some microseconds for each thread.
    pub(super) fn count(&self) -> u64 {
        let threads = threads(self.pid).unwrap_or_default();
        threads.into_iter().filter_map(stretches).sum()
    }
}

/// `/proc/PID/schedstat`: the time it ran, the time it waited, and how many stretches it ran.
fn stretches(tid: i32) -> Option<u64> {
    let line = fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    line.split_whitespace().nth(2)?.parse().ok()
}
