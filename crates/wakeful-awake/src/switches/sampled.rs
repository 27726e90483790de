//! Counts how often threads ran, by `/proc`. It is used where events are refused, and while they
//! would cost the process too much.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use super::processes::{Processes, is_short, stat_field};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Sampled {
    /// The threads at the last count, with their values at that time.
    seen: BTreeMap<i32, u64>,
}

impl Sampled {
    /// Counts from now on.
    ///
    /// # Errors
    /// There is no such process; no descriptor or no memory is left.
    pub(super) fn of(processes: &mut Processes) -> io::Result<Self> {
        let mut seen = BTreeMap::new();
        for tid in processes.threads()? {
            seen.extend(stretches(tid)?.map(|now| (tid, now)));
        }
        Ok(Self { seen })
    }

    /// Counts the stretches for which threads have run since the last count, one for each switch.
    /// The last stretches of a thread that has ended are missing. Adds the CPUs on which the
    /// threads ran last. This takes some microseconds for each thread.
    ///
    /// # Errors
    /// No descriptor or no memory is left. The next count then has these switches, too.
    pub(super) fn count(
        &mut self,
        processes: &mut Processes,
        used: &mut BTreeSet<usize>,
    ) -> io::Result<u64> {
        let (mut seen, mut new) = (BTreeMap::new(), 0_u64);
        for tid in unless_short(processes.threads())?.unwrap_or_default() {
            let Some(now) = stretches(tid)? else { continue };
            // A smaller number belongs to another thread, which has got the same id.
            let before = self.seen.get(&tid).filter(|before| **before <= now);
            let ran = match before {
                Some(before) => now - before,
                // The thread has started since the last count. (But it may have been moved into a
                // cgroup.)
                None => {
                    if processes.start_within() {
                        now
                    } else {
                        0
                    }
                }
            };
            if ran > 0 {
                used.extend(last_cpu(tid));
            }
            new += ran;
            seen.insert(tid, now);
        }
        self.seen = seen;
        Ok(new)
    }

    /// How many threads there were at the last count.
    pub(super) fn threads(&self) -> usize {
        self.seen.len()
    }
}

/// The CPU on which a thread ran last. `None`: the thread has ended.
fn last_cpu(tid: i32) -> Option<usize> {
    stat_field(tid, 39).ok()
}

/// Parses `/proc/PID/schedstat`: the time that the thread ran, the time that it waited, and how
/// many stretches it ran. `None`: the thread has ended.
///
/// # Errors
/// No descriptor or no memory is left.
fn stretches(tid: i32) -> io::Result<Option<u64>> {
    let line = unless_short(fs::read_to_string(format!("/proc/{tid}/schedstat")))?;
    Ok(line.and_then(|line| line.split_whitespace().nth(2)?.parse().ok()))
}

/// `None`: there is no such file.
///
/// # Errors
/// This process or the system lacks something. That says nothing about the file.
fn unless_short<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if is_short(&error) => Err(error),
        result => Ok(result.ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_cut_within_a_character() {
        let cpu = std::thread::spawn(|| {
            rustix::thread::set_name(c"fourteen bytes\xc3").unwrap();
            last_cpu(rustix::thread::gettid().as_raw_pid())
        });
        assert!(cpu.join().unwrap().is_some());
    }
}
