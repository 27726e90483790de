//! What the machine pays, whichever program causes it: what its CPUs did between two readings of
//! the kernel's counters. `/proc/stat` shows a held CPU as idle. That the CPU polls is in [`idle`].
//!
//! The generator's CPU is left out, because it spins.

mod energy;
mod idle;
mod interrupts;

use std::io;
use std::path::Path;
use std::time::Instant;

use wakeful_load::internals::procfs::{CpuTime, CpuTimes, tick};

use self::energy::Package;
use self::idle::IdleTime;
pub(super) use self::idle::how_cpus_idle;

/// The counters at one moment.
#[derive(Debug)]
pub(super) struct Counters {
    at: Instant,
    times: CpuTimes,
    idle: Option<IdleTime>,
    timer: Option<u64>,
    packages: Vec<Package>,
}

/// What happened between two readings. Shares are of one CPU: 2 means two CPUs all the time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Pays {
    /// The time of threads and interrupts.
    pub(super) busy: f64,
    pub(super) idle: f64,
    /// The time that the hypervisor took.
    pub(super) steal: f64,
    /// The time in which CPUs were idle and awake, asking for work all the time.
    pub(super) polling: Option<f64>,
    /// The time in which CPUs were idle and asleep.
    pub(super) halted: Option<f64>,
    /// The timer interrupts per second.
    pub(super) timer: Option<f64>,
    /// The power of whole processor packages, including the generator's CPU.
    pub(super) watts: Option<f64>,
}

impl Counters {
    /// Reads the counters of all CPUs but one.
    pub(super) fn read(but: Option<usize>) -> io::Result<Self> {
        let mut times = CpuTimes::read()?;
        times.cpus.retain(|cpu, _| Some(*cpu) != but);
        let cpus: Vec<usize> = times.cpus.keys().copied().collect();
        Ok(Self {
            at: Instant::now(),
            idle: idle::read(Path::new(idle::CPUS), &cpus),
            timer: interrupts::timer(&cpus),
            packages: energy::read(Path::new(energy::DOMAINS)),
            times,
        })
    }

    pub(super) fn since(&self, earlier: &Self) -> Pays {
        let seconds = (self.at - earlier.at).as_secs_f64();
        let times = self.times.since(&earlier.times);
        let share = |ticks: fn(&CpuTime) -> u64| {
            times.cpus.values().map(ticks).sum::<u64>() as f64 * tick() / seconds
        };
        let idle = self.idle.zip(earlier.idle).map(|(now, before)| now.since(before));
        let timer = self.timer.zip(earlier.timer);
        Pays {
            busy: share(|cpu| cpu.in_tasks() + cpu.in_interrupts()),
            idle: share(|cpu| cpu.idle + cpu.iowait),
            steal: share(|cpu| cpu.steal),
            polling: idle.map(|idle| idle.polling.as_secs_f64() / seconds),
            halted: idle.map(|idle| idle.halted.as_secs_f64() / seconds),
            timer: timer.map(|(now, before)| now.saturating_sub(before) as f64 / seconds),
            watts: energy::joules(&self.packages, &earlier.packages).map(|used| used / seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_changed_is_told_by_the_second_and_of_all_cpus_together() {
        let at = Instant::now();
        let counters = |seconds: u64| {
            let cpu = CpuTime {
                user: 25 * seconds,
                softirq: 5 * seconds,
                idle: 60 * seconds,
                iowait: 10 * seconds,
                steal: seconds,
                ..CpuTime::default()
            };
            Counters {
                at: at + Duration::from_secs(seconds),
                times: CpuTimes { cpus: [(0, cpu), (1, cpu)].into() },
                idle: Some(IdleTime {
                    polling: Duration::from_secs(seconds),
                    halted: Duration::from_millis(400 * seconds),
                }),
                timer: Some(250 * seconds),
                packages: Vec::new(),
            }
        };
        let pays = counters(7).since(&counters(3));
        let close = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(close(pays.busy, 0.6) && close(pays.idle, 1.4) && close(pays.steal, 0.02));
        assert!(close(pays.polling.unwrap(), 1.0) && close(pays.halted.unwrap(), 0.4));
        assert!(close(pays.timer.unwrap(), 250.0) && pays.watts.is_none(), "{pays:?}");
    }

    #[test]
    fn the_generators_cpu_is_left_out() {
        let all = Counters::read(None).unwrap().times.cpus;
        let first = *all.keys().next().unwrap();
        let others = Counters::read(Some(first)).unwrap().times.cpus;
        assert_eq!(others.len(), all.len() - 1);
        assert!(!others.contains_key(&first));
    }
}
