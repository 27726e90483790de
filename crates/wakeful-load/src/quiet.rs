//! Whether other programs used the CPUs during a measurement, and the wait until they no longer do.
//!
//! The use by outsiders is the CPU time of all threads on the CPUs of server and generator, minus
//! that of our own processes. Response times have no part in it: a server that makes its generator
//! late disturbs nothing.
//!
//! # What it cannot see
//!
//! * `/proc/stat` counts in ticks of 10 ms, rounded down, and most kernels notice what runs only at
//!   each timer interrupt. [`Outside::resolution`] is the possible rounding error: 28 ms on two
//!   CPUs. In a block below 0.5 s that exceeds the default limit, so such a block counts as
//!   disturbed only beyond it.
//! * Interrupts and softirqs are never charged to outsiders, because those of loopback are our own
//!   packets. But a kernel without `CONFIG_IRQ_TIME_ACCOUNTING` also has them in the time of our
//!   threads. So outside use of up to [`Outside::interrupts`] could be hidden by them. Therefore
//!   other processes are also counted one by one. Those in other containers stay hidden, and those
//!   that end before the second reading.
//! * Our threads on other CPUs are deducted as if they had run on these: pin them, or name their
//!   CPUs, too.
//! * Our child processes that start and end between two readings count as outsiders.

mod strangers;

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use self::strangers::Processes;
use crate::procfs::{CpuTime, CpuTimes, ProcessCpu, tick};

/// How many ticks may be rounding, for one CPU. Those of several CPUs partly cancel out.
const FEW_TICKS: f64 = 2.0;

/// A shorter time is too short to see anything.
const SHORTEST_SETTLE: Duration = Duration::from_millis(50);

/// The start of a time over which outside use is of interest. Can be sent to other threads.
#[derive(Debug, Clone)]
pub struct Baseline {
    pids: Vec<u32>,
    cpus: Vec<usize>,
    at: Instant,
    times: CpuTimes,
    ours: ProcessCpu,
    all: Processes,
}

/// What others used since the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Outside {
    /// CPU time of other programs and of the kernel's own threads, in CPUs: 1 is a whole CPU all
    /// the time.
    pub share: f64,
    /// What the hypervisor took, in CPUs.
    pub steal: f64,
    /// Interrupts and softirqs, in CPUs. They are not part of `share`, but they may hide up to this
    /// much outside use.
    pub interrupts: f64,
    /// The time since the baseline, in seconds.
    pub seconds: f64,
    /// How many CPUs were looked at.
    pub cpus: usize,
}

impl Baseline {
    /// Starts a measurement of what is used on `cpus` by processes other than `pids` and their
    /// descendants. No CPUs means all of the machine. Reads all of `/proc`, which took 1 to 5 ms
    /// with 100 processes: do it before the time that is measured.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if one of the processes is gone, [`io::ErrorKind::InvalidInput`]
    /// if one of the CPUs does not exist, and what reading `/proc` says.
    pub fn take(pids: &[u32], cpus: &[usize]) -> io::Result<Self> {
        let (at, times) = (Instant::now(), CpuTimes::read()?);
        let cpus =
            if cpus.is_empty() { times.cpus.keys().copied().collect() } else { distinct(cpus) };
        if let Some(missing) = cpus.iter().find(|cpu| !times.cpus.contains_key(cpu)) {
            let message = format!("CPU {missing} does not exist or is offline");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let (ours, all) = (read_trees(pids)?, Processes::read()?);
        Ok(Self { pids: pids.to_vec(), cpus, at, times, ours, all })
    }

    /// Returns what others have used since the baseline. It can be called any number of times.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if one of our processes is gone, as nobody knows what it used;
    /// and what reading `/proc` says.
    pub fn outside(&self) -> io::Result<Outside> {
        let (seconds, times) = (self.at.elapsed().as_secs_f64(), CpuTimes::read()?);
        let (ours, all) = (read_trees(&self.pids)?, Processes::read()?);
        let our_pids = [self.ours.pids(), ours.pids()].concat();
        let strangers = all.strangers_since(&self.all, &self.cpus, &our_pids) as f64 * tick();
        let ours = ours.used_since(&self.ours).total().as_secs_f64();
        let since = times.since(&self.times);
        let cpus = self.cpus.iter().filter_map(|cpu| since.cpus.get(cpu));
        let cpus: Vec<CpuTime> = cpus.copied().collect();
        Ok(outside(&cpus, ours, strangers, seconds, tick()))
    }
}

impl Outside {
    /// Returns what others used, including the hypervisor, in CPUs.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.share + self.steal
    }

    /// Returns how much of the use may be only rounding, in CPUs.
    #[must_use]
    pub fn resolution(&self) -> f64 {
        if self.seconds <= 0.0 {
            return f64::INFINITY;
        }
        FEW_TICKS * tick() * (self.cpus as f64).sqrt() / self.seconds
    }

    /// Returns whether others used more than `limit`, in CPUs, and more than rounding explains.
    #[must_use]
    pub fn exceeds(&self, limit: f64) -> bool {
        self.total() > limit.max(self.resolution())
    }
}

fn distinct(cpus: &[usize]) -> Vec<usize> {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn read_trees(pids: &[u32]) -> io::Result<ProcessCpu> {
    let mut all = ProcessCpu::default();
    for pid in pids {
        all.merge(ProcessCpu::read_tree(*pid)?);
    }
    Ok(all)
}

/// `cpus` is what each of them did, `ours` the seconds that our processes used, and `strangers`
/// those that others were seen to use.
fn outside(cpus: &[CpuTime], ours: f64, strangers: f64, seconds: f64, tick: f64) -> Outside {
    let mut outside = Outside { seconds, cpus: cpus.len(), ..Outside::default() };
    if seconds <= 0.0 {
        return outside;
    }
    let sum = |ticks: fn(&CpuTime) -> u64| cpus.iter().map(ticks).sum::<u64>() as f64 * tick;
    let interrupts = sum(CpuTime::in_interrupts);
    let steal = sum(|cpu| cpu.steal);
    // Two ways to the same figure: by what was running at the ticks, and by the clock less what was
    // idle. The first is a sample; the second is exact where the kernel times its idleness. Only
    // what both agree on is somebody's.
    let at_ticks = sum(CpuTime::in_tasks);
    let not_idle =
        seconds * cpus.len() as f64 - sum(|cpu| cpu.idle + cpu.iowait) - steal - interrupts;
    // Interrupts may be in our time, or not.
    let least = (at_ticks.min(not_idle) - ours).max(0.0);
    let most = (at_ticks.min(not_idle) + interrupts - ours).max(0.0);
    outside.share = strangers.clamp(least, most) / seconds;
    outside.steal = steal / seconds;
    outside.interrupts = interrupts / seconds;
    outside
}

/// When a machine is quiet enough, and how long to wait for that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// What others may use, including the hypervisor, in CPUs.
    pub share: f64,
    /// How long the machine has to be this quiet, which is also the time between two checks. At
    /// least 50 ms. Over less than 0.5 s, a little more than [`share`](Limits::share) cannot be
    /// distinguished from rounding.
    pub settle: Duration,
    /// How long to wait before giving up.
    pub patience: Duration,
}

impl Default for Limits {
    /// 0.05 CPUs over 300 ms, and 20 s of patience.
    fn default() -> Self {
        Self { share: 0.05, settle: Duration::from_millis(300), patience: Duration::from_secs(20) }
    }
}

/// The result of [`wait_for_quiet`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waited {
    /// How long it waited.
    pub waited: Duration,
    /// Whether the machine became quiet. If not, the time was up, or the callback ended the wait.
    pub quiet: bool,
    /// What other programs used in the last settling time.
    pub last: Outside,
}

/// Waits until processes other than `ours` and their descendants leave `cpus` alone. Blocks the
/// calling thread for at least one settling time ([`Limits::settle`]). After each settling time
/// that was not quiet, `go_on` gets what others used in it, and returns whether to continue.
///
/// # Errors
///
/// The errors of [`Baseline::take`] and [`Baseline::outside`].
pub fn wait_for_quiet(
    limits: &Limits,
    ours: &[u32],
    cpus: &[usize],
    go_on: &mut dyn FnMut(&Outside) -> bool,
) -> io::Result<Waited> {
    let settle = limits.settle.max(SHORTEST_SETTLE);
    wait(limits, go_on, || {
        let baseline = Baseline::take(ours, cpus)?;
        thread::sleep(settle);
        baseline.outside()
    })
}

/// `look` takes the time of settling.
fn wait(
    limits: &Limits,
    go_on: &mut dyn FnMut(&Outside) -> bool,
    mut look: impl FnMut() -> io::Result<Outside>,
) -> io::Result<Waited> {
    let start = Instant::now();
    loop {
        let last = look()?;
        let quiet = !last.exceeds(limits.share);
        let waited = start.elapsed();
        if quiet || !go_on(&last) || waited >= limits.patience {
            return Ok(Waited { waited, quiet, last });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    const TICK: f64 = 0.01;

    struct Killed(Child);

    impl Killed {
        fn start(script: &str) -> Self {
            Self(Command::new("sh").args(["-c", script]).spawn().unwrap())
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Killed {
        fn drop(&mut self) {
            self.0.kill().ok();
            self.0.wait().ok();
        }
    }

    fn busy(user: u64, idle: u64) -> CpuTime {
        CpuTime { user, idle, ..CpuTime::default() }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn what_is_not_ours_is_outside() {
        let outside = outside(&[busy(60, 40), busy(30, 70)], 0.7, 0.0, 1.0, TICK);
        assert!(close(outside.share, 0.2), "{outside:?}");
        assert!(outside.exceeds(0.05) && !outside.exceeds(0.3));
    }

    #[test]
    fn interrupts_are_nobodys_and_steal_is_outside() {
        let cpu =
            CpuTime { user: 40, softirq: 30, irq: 10, steal: 5, idle: 15, ..CpuTime::default() };
        let outside = outside(&[cpu], 0.4, 0.0, 1.0, TICK);
        assert!(close(outside.share, 0.0) && close(outside.interrupts, 0.4), "{outside:?}");
        assert!(close(outside.steal, 0.05) && close(outside.total(), 0.05), "{outside:?}");
        assert!(outside.exceeds(0.04));
    }

    #[test]
    fn a_stranger_does_not_hide_behind_our_interrupts() {
        // Ours used 0.6, of which 0.2 were interrupts: 0.1 more than that ran.
        let cpu = CpuTime { user: 50, softirq: 20, idle: 30, ..CpuTime::default() };
        let share = |strangers| outside(&[cpu], 0.6, strangers, 1.0, TICK).share;
        assert!(close(share(0.0), 0.0));
        assert!(close(share(0.07), 0.07));
        assert!(close(share(0.9), 0.1), "it ran elsewhere");
    }

    #[test]
    fn what_samples_and_idleness_do_not_agree_on_is_nobodys() {
        // The ticks met someone 60 times, but it was idle for 70 of them.
        let outside_seen = outside(&[busy(60, 70)], 0.2, 0.0, 1.0, TICK);
        assert!(close(outside_seen.share, 0.1), "{outside_seen:?}");
        // The ticks met nobody.
        let outside_seen = outside(&[busy(20, 40)], 0.2, 0.0, 1.0, TICK);
        assert!(close(outside_seen.share, 0.0), "{outside_seen:?}");
    }

    #[test]
    fn nothing_is_negative_and_no_time_is_no_use() {
        assert_eq!(outside(&[busy(10, 90)], 0.5, 0.0, 1.0, TICK).share, 0.0);
        let none = outside(&[busy(10, 90)], 0.0, 0.0, 0.0, TICK);
        assert!(none.total() == 0.0 && !none.exceeds(0.0), "{none:?}");
    }

    #[test]
    fn a_short_time_is_not_spoilt_by_rounding() {
        let seen = |seconds| Outside { share: 0.08, seconds, cpus: 2, ..Outside::default() };
        assert!(!seen(0.3).exceeds(0.05), "24 ms");
        assert!(seen(1.0).exceeds(0.05), "80 ms");
        let much = Outside { share: 0.2, ..seen(0.3) };
        assert!(much.exceeds(0.05), "60 ms");
    }

    #[test]
    fn a_spinning_stranger_is_outside_until_it_is_ours() {
        let spinner = Killed::start("while :; do :; done");
        let sleeper = Killed::start("exec sleep 600");
        let strange = Baseline::take(&[sleeper.pid()], &[]).unwrap();
        let ours = Baseline::take(&[sleeper.pid(), spinner.pid()], &[]).unwrap();
        // For as long as it takes a busy machine to let the spinner run.
        let before = ProcessCpu::read(spinner.pid()).unwrap();
        let spun = || ProcessCpu::read(spinner.pid()).unwrap().used_since(&before).total();
        while spun() < Duration::from_millis(500) {
            thread::sleep(Duration::from_millis(20));
        }
        let spun = spun().as_secs_f64();
        let (strange, ours) = (strange.outside().unwrap(), ours.outside().unwrap());
        let difference = strange.total() * strange.seconds - ours.total() * ours.seconds;
        assert!(difference > spun / 2.0, "{spun} s: {strange:?} {ours:?}");
        assert!(strange.exceeds(0.05), "{strange:?}");
    }

    #[test]
    fn processes_and_cpus_must_be_there() {
        let error = Baseline::take(&[], &[0, 99_999]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let child = Killed::start("exec sleep 600");
        let pid = child.pid();
        let baseline = Baseline::take(&[pid], &[]).unwrap();
        drop(child);
        assert_eq!(baseline.outside().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(Baseline::take(&[pid], &[]).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn waiting_ends_when_it_is_quiet() {
        let mut shares = [0.9, 0.3, 0.01].into_iter();
        let mut shown = Vec::new();
        let mut go_on = |outside: &Outside| {
            shown.push(outside.share);
            true
        };
        let waited = wait(&Limits::default(), &mut go_on, || {
            let share = shares.next().unwrap();
            Ok(Outside { share, seconds: 1.0, cpus: 1, ..Outside::default() })
        });
        let waited = waited.unwrap();
        assert!(waited.quiet && waited.last.share == 0.01, "{waited:?}");
        assert_eq!(shown, [0.9, 0.3]);
    }

    #[test]
    fn waiting_ends_when_patience_does_or_the_callback_says_so() {
        let look = || Ok(Outside { share: 1.0, seconds: 1.0, cpus: 1, ..Outside::default() });
        let patient = Limits::default();
        let waited = wait(&patient, &mut |_| false, look).unwrap();
        assert!(!waited.quiet && waited.last.share == 1.0, "{waited:?}");
        let impatient = Limits { patience: Duration::ZERO, ..patient };
        assert!(!wait(&impatient, &mut |_| true, look).unwrap().quiet);
    }

    #[test]
    fn a_whole_wait_looks_at_this_machine() {
        let none = Limits { share: f64::INFINITY, settle: Duration::ZERO, ..Limits::default() };
        let waited = wait_for_quiet(&none, &[std::process::id()], &[], &mut |_| false).unwrap();
        assert!(waited.quiet && waited.waited >= SHORTEST_SETTLE, "{waited:?}");
    }
}
