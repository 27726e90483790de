//! What each CPU did, from `/proc/stat`, in ticks of 10 ms that are rounded down. `processes.rs`
//! has the time of processes, and [`crate::quiet`] combines both.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use super::unexpected;

/// What each CPU did since boot, or between two readings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuTimes {
    /// By CPU number.
    pub cpus: BTreeMap<usize, CpuTime>,
}

/// What one CPU did, in [ticks](tick). Most kernels find out by looking at each timer interrupt:
/// over less than a second, these are samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// User mode, guests included.
    pub user: u64,
    /// User mode of niced processes.
    pub nice: u64,
    /// In the kernel, on behalf of processes or of itself.
    pub system: u64,
    /// The CPU did nothing.
    pub idle: u64,
    /// The CPU did nothing, while a thread that slept here waited for a disk.
    pub iowait: u64,
    /// Interrupts.
    pub irq: u64,
    /// Softirqs: packets received, timers.
    pub softirq: u64,
    /// A thread would have run, but the hypervisor ran something else.
    pub steal: u64,
}

impl CpuTime {
    /// Returns the time of threads, including the kernel's own.
    #[must_use]
    pub fn in_tasks(&self) -> u64 {
        self.user + self.nice + self.system
    }

    /// Returns the time of interrupts and softirqs.
    #[must_use]
    pub fn in_interrupts(&self) -> u64 {
        self.irq + self.softirq
    }

    fn fields(&mut self) -> [&mut u64; 8] {
        let Self { user, nice, system, idle, iowait, irq, softirq, steal } = self;
        [user, nice, system, idle, iowait, irq, softirq, steal]
    }
}

/// Returns the length of a tick in seconds: 0.01.
#[must_use]
pub fn tick() -> f64 {
    1.0 / rustix::param::clock_ticks_per_second().max(1) as f64
}

impl CpuTimes {
    /// Reads `/proc/stat`.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or names no CPU.
    pub fn read() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        let times = Self::parse(&text);
        if times.cpus.is_empty() { Err(unexpected("stat", &text)) } else { Ok(times) }
    }

    fn parse(text: &str) -> Self {
        let cpus = text.lines().filter_map(|line| {
            let mut words = line.strip_prefix("cpu")?.split(' ');
            // The line of all CPUs together has no number.
            let cpu = words.next()?.parse().ok()?;
            let mut time = CpuTime::default();
            for (field, word) in time.fields().into_iter().zip(words) {
                *field = word.parse().ok()?;
            }
            Some((cpu, time))
        });
        Self { cpus: cpus.collect() }
    }

    /// Returns what happened since an earlier reading. CPUs that are only in the later reading are
    /// left out. A counter that went backwards, as `iowait` may, counts as zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let cpus = self.cpus.iter().filter_map(|(cpu, time)| {
            let mut since = *time;
            let mut before = *earlier.cpus.get(cpu)?;
            for (field, before) in since.fields().into_iter().zip(before.fields()) {
                *field = field.saturating_sub(*before);
            }
            Some((*cpu, since))
        });
        Self { cpus: cpus.collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::burn;
    use super::*;

    #[test]
    fn cpus_are_parsed_and_subtracted() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 40 5 6 7 8 0 0\ncpu3 1 1 1 1\nintr 1 2\n";
        let earlier = CpuTimes::parse(text);
        assert_eq!(earlier.cpus.keys().copied().collect::<Vec<_>>(), [0, 3]);
        let time = earlier.cpus[&0];
        assert_eq!((time.in_tasks(), time.in_interrupts()), (6, 13));
        assert_eq!((time.idle, time.iowait, time.steal), (40, 5, 8));
        let later = CpuTimes::parse("cpu0 2 2 3 47 4 6 8 9\ncpu1 1 1 1 1 1 1 1 1\n");
        let since = later.since(&earlier);
        assert_eq!(since.cpus.len(), 1, "only CPUs of both readings");
        let time = since.cpus[&0];
        assert_eq!((time.user, time.idle, time.iowait, time.softirq, time.steal), (1, 7, 0, 1, 1));
    }

    #[test]
    fn this_machine_has_cpus() {
        let earlier = CpuTimes::read().unwrap();
        burn(Duration::from_millis(50));
        let since = CpuTimes::read().unwrap().since(&earlier);
        let busy: u64 = since.cpus.values().map(CpuTime::in_tasks).sum();
        assert!(busy > 0, "{since:?}");
    }
}
