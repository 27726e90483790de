//! The CPU time of a process's threads.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

/// Returns the CPU time of each thread, by its number.
pub fn cpu_times(pid: u32) -> io::Result<BTreeMap<u32, Duration>> {
    let mut times = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?;
        let number = task.file_name().to_str().and_then(|name| name.parse().ok());
        // "time on the CPU, time on a run queue, time slices", in nanoseconds: proc(5). A thread
        // that has just ended has no such file.
        let Ok(stat) = fs::read_to_string(task.path().join("schedstat")) else { continue };
        let time = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
        let (Some(number), Some(time)) = (number, time) else {
            return Err(io::Error::other(format!("cannot read {}", task.path().display())));
        };
        times.insert(number, Duration::from_nanos(time));
    }
    Ok(times)
}

/// Returns how much each thread used between two readings.
pub fn used(
    before: &BTreeMap<u32, Duration>,
    after: &BTreeMap<u32, Duration>,
) -> Vec<(u32, Duration)> {
    let since = |number| before.get(number).copied().unwrap_or_default();
    after.iter().map(|(number, time)| (*number, time.saturating_sub(since(number)))).collect()
}
