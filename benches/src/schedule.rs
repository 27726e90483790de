//! What the kernel's scheduler counts: the time a process ran, and the time it
//! could have run but had to wait, because something else had its CPU.

use std::fs;

use anyhow::{Context, Result};
use rustix::param::clock_ticks_per_second;

/// The seconds of user and system time that all threads of a process have used.
/// The kernel counts them in clock ticks, usually of 10 ms.
#[allow(clippy::cast_precision_loss)]
pub fn process_ran(pid: u32) -> Result<f64> {
    let ticks = read(&format!("/proc/{pid}/stat"), user_and_system_ticks)?;
    Ok(ticks as f64 / clock_ticks_per_second() as f64)
}

/// The seconds that all threads of a process have waited for a CPU. Time spent
/// parked in a system call is not among them.
pub fn process_waited(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/task");
    let mut sum = 0.0;
    for task in fs::read_dir(&path).with_context(|| format!("cannot read {path}"))? {
        let schedstat = task?.path().join("schedstat");
        sum += seconds_waited(&schedstat.to_string_lossy())?;
    }
    Ok(sum)
}

/// The seconds that the calling thread has waited for a CPU.
pub fn this_thread_waited() -> Result<f64> {
    seconds_waited("/proc/thread-self/schedstat")
}

#[allow(clippy::cast_precision_loss)]
fn seconds_waited(path: &str) -> Result<f64> {
    let nanoseconds = read(path, |text| text.split_whitespace().nth(1)?.parse().ok())?;
    Ok(nanoseconds as f64 / 1e9)
}

/// Reads one number out of a file of `/proc`.
fn read(path: &str, number: impl Fn(&str) -> Option<u64>) -> Result<u64> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    number(&text).with_context(|| format!("cannot parse {path}"))
}

/// Adds up the fields `utime` and `stime` of `/proc/PID/stat`.
fn user_and_system_ticks(stat: &str) -> Option<u64> {
    // The second field, the name in parentheses, may itself contain spaces and
    // parentheses. The two are the 12th and the 13th field behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11);
    let user: u64 = times.next()?.parse().ok()?;
    let system: u64 = times.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_are_found_behind_a_difficult_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 30 12 5 6 20 0 1";
        assert_eq!(user_and_system_ticks(stat), Some(42));
    }

    #[test]
    fn the_kernel_counts_for_this_process() {
        let pid = std::process::id();
        assert!(process_ran(pid).unwrap() >= 0.0);
        assert!(process_waited(pid).unwrap() >= 0.0);
        assert!(this_thread_waited().unwrap() >= 0.0);
    }
}
