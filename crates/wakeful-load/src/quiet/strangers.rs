//! How much CPU time each other process has used, whoever owns it.

use std::collections::BTreeMap;
use std::io;

use procfs::process::Stat;

use crate::procfs::{numbers_in, stat_of};

/// What each visible process of the machine has used until now.
#[derive(Debug, Clone, Default)]
pub(super) struct Processes {
    /// By process number and by the ticks from boot to the process's start, because numbers are
    /// used again.
    by_pid: BTreeMap<(u32, u64), Process>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    /// User and system time of all threads of the process, including those that have ended.
    ticks: u64,
    /// The CPU on which the first thread of the process ran last.
    cpu: usize,
}

impl Processes {
    /// Takes some 10 µs for each process.
    pub(super) fn read() -> io::Result<Self> {
        let mut by_pid = BTreeMap::new();
        for pid in numbers_in("/proc") {
            if let Some((started, process)) = stat_of(pid)?.and_then(|stat| taken(&stat)) {
                by_pid.insert((pid, started), process);
            }
        }
        Ok(Self { by_pid })
    }

    /// The ticks that processes whose first thread was last on one of `cpus` used since then,
    /// except `ours`. Those that have ended are missing.
    pub(super) fn strangers_since(&self, earlier: &Self, cpus: &[usize], ours: &[u32]) -> u64 {
        let strangers = self
            .by_pid
            .iter()
            .filter(|((pid, _), process)| cpus.contains(&process.cpu) && !ours.contains(pid));
        let used = strangers.map(|(key, process)| {
            let before = earlier.by_pid.get(key).map_or(0, |before| before.ticks);
            process.ticks.saturating_sub(before)
        });
        used.sum()
    }
}

/// Returns when the process started, and what it used. Returns `None` for the kernel's threads that
/// handle softirqs, because they handle our softirqs, too.
fn taken(stat: &Stat) -> Option<(u64, Process)> {
    if stat.comm.starts_with("ksoftirqd/") {
        return None;
    }
    let cpu = usize::try_from(stat.processor?).ok()?;
    Some((stat.starttime, Process { ticks: stat.utime + stat.stime, cpu }))
}

#[cfg(test)]
mod tests {
    use procfs::FromRead;

    use super::*;

    fn stat(name: &str, user: u64, started: u64, cpu: usize) -> Stat {
        let zeros = |count: usize| "0 ".repeat(count);
        let text = format!(
            "7 ({name}) S {}{user} 5 {}{started} {}{cpu} 0",
            zeros(10),
            zeros(6),
            zeros(16)
        );
        Stat::from_read(text.as_bytes()).unwrap()
    }

    fn processes(list: &[(u32, u64, u64, usize)]) -> Processes {
        let by_pid =
            list.iter().map(|&(pid, started, ticks, cpu)| ((pid, started), Process { ticks, cpu }));
        Processes { by_pid: by_pid.collect() }
    }

    #[test]
    fn a_process_is_taken_and_softirqs_are_nobodys() {
        let expected = Process { ticks: 105, cpu: 3 };
        assert_eq!(taken(&stat("a) (b", 100, 9, 3)), Some((9, expected)));
        assert_eq!(taken(&stat("ksoftirqd/3", 100, 9, 3)), None);
    }

    #[test]
    fn strangers_on_these_cpus_are_counted() {
        let earlier = processes(&[(1, 0, 10, 0), (2, 0, 10, 0), (3, 0, 10, 5), (4, 0, 10, 1)]);
        let later = processes(&[
            (1, 0, 13, 0),
            (2, 0, 90, 0), // ours
            (3, 0, 90, 5), // elsewhere
            (4, 7, 4, 1),  // another of the same number
        ]);
        assert_eq!(later.strangers_since(&earlier, &[0, 1], &[2]), 3 + 4);
        assert_eq!(earlier.strangers_since(&later, &[0, 1], &[2, 4]), 0);
    }

    #[test]
    fn this_machine_has_processes() {
        let processes = Processes::read().unwrap();
        let this = std::process::id();
        assert!(processes.by_pid.keys().any(|(pid, _)| *pid == this));
    }
}
