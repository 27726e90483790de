//! The CPU time of processes and their threads.
//!
//! The total of a process, in nanoseconds, is the sum of its threads' `schedstat`. If a thread runs
//! at the moment of reading, its time since the last scheduler tick (4 ms at 250 Hz) may be
//! missing. `/proc/PID/stat`, in ticks of 10 ms, divides the total into user and kernel time, and
//! has the time of threads that have ended.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::tree::process_tree;
use super::{gone, is_over, numbers_in, read_if_there, stat_of};
use crate::results::Cpu;

/// By how many ticks `stat` may be off, because user and system time are each cut off to a tick.
const TICKS_CUT_OFF: u64 = 2;

/// What processes used since each of them started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessCpu {
    processes: BTreeMap<u32, Process>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Process {
    /// Whether the process has ended. It is a zombie then, because nobody has waited for it yet.
    has_ended: bool,
    /// Ticks in user mode, including those of threads that have ended.
    user: u64,
    /// Ticks in the kernel.
    system: u64,
    /// Ticks from boot to the start of the process. They distinguish it from an earlier process of
    /// the same number.
    started: u64,
    threads: BTreeMap<u32, Thread>,
}

/// What one thread used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Thread {
    ran_ns: u64,
    waited_ns: u64,
    voluntary: u64,
    involuntary: u64,
}

/// CPU time of processes between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuUse {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// Time that threads were runnable and waited for a CPU.
    pub run_queue_wait: Duration,
    /// Switches because a thread slept.
    pub voluntary_switches: u64,
    /// Switches because something else was given its CPU.
    pub involuntary_switches: u64,
}

impl CpuUse {
    /// Returns user and system time together.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.user + self.system
    }
}

impl ProcessCpu {
    /// Reads what a process used, all its threads together and without its children.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if there is no such process any more, a zombie included.
    pub fn read(pid: u32) -> io::Result<Self> {
        let process = Process::read(pid)?.filter(|process| !process.has_ended);
        let process = process.ok_or_else(|| gone(pid))?;
        Ok(Self { processes: BTreeMap::from([(pid, process)]) })
    }

    /// Reads what a process and all its living descendants used. What a descendant used between the
    /// last reading and its end is lost.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if the process itself is gone; descendants may come and go.
    pub fn read_tree(pid: u32) -> io::Result<Self> {
        let mut tree = Self::read(pid)?;
        for descendant in process_tree(pid)?.into_iter().skip(1) {
            if let Some(process) = Process::read(descendant)? {
                tree.processes.insert(descendant, process);
            }
        }
        Ok(tree)
    }

    /// Adds another reading, of other processes.
    pub fn merge(&mut self, other: Self) {
        self.processes.extend(other.processes);
    }

    /// Returns the processes in this reading.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }

    /// Returns what was used since an earlier reading. Processes and threads that started in
    /// between count from their start.
    #[must_use]
    pub fn used_since(&self, earlier: &Self) -> CpuUse {
        let mut used = CpuUse::default();
        for (pid, process) in &self.processes {
            let same = |before: &&Process| before.started == process.started;
            let before = earlier.processes.get(pid).filter(same);
            process.add_use_since(before.unwrap_or(&Process::default()), &mut used);
        }
        used
    }

    /// Returns what was used since an earlier reading, in the form of the results. `seconds` is the
    /// time between the two readings.
    #[must_use]
    pub fn since(&self, earlier: &Self, seconds: f64) -> Cpu {
        let used = self.used_since(earlier);
        let share = if seconds > 0.0 { used.total().as_secs_f64() / seconds } else { 0.0 };
        Cpu {
            user: used.user.as_secs_f64(),
            system: used.system.as_secs_f64(),
            run_queue_wait: used.run_queue_wait.as_secs_f64(),
            voluntary_switches: used.voluntary_switches,
            involuntary_switches: used.involuntary_switches,
            share,
        }
    }
}

impl Process {
    /// Returns `None` if the process is gone.
    fn read(pid: u32) -> io::Result<Option<Self>> {
        let Some(stat) = stat_of(pid)? else { return Ok(None) };
        let mut threads = BTreeMap::new();
        for tid in numbers_in(format!("/proc/{pid}/task")) {
            let status = read_if_there(format!("/proc/{pid}/task/{tid}/status"))?;
            // A kernel without `schedstat` has only ticks.
            let schedstat = read_if_there(format!("/proc/{pid}/task/{tid}/schedstat"))?;
            // If there is no status, the thread has ended since the directory was read, and `stat`
            // has the time that it used.
            if let Some(status) = status {
                threads.insert(tid, Thread::parse(&schedstat.unwrap_or_default(), &status));
            }
        }
        Ok(Some(Self {
            has_ended: is_over(&stat),
            user: stat.utime,
            system: stat.stime,
            started: stat.starttime,
            threads,
        }))
    }

    fn add_use_since(&self, earlier: &Self, used: &mut CpuUse) {
        let mut ran_ns = 0;
        for (tid, thread) in &self.threads {
            let before = earlier.threads.get(tid).copied().unwrap_or_default();
            ran_ns += thread.ran_ns.saturating_sub(before.ran_ns);
            let waited = thread.waited_ns.saturating_sub(before.waited_ns);
            used.run_queue_wait += Duration::from_nanos(waited);
            used.voluntary_switches += thread.voluntary.saturating_sub(before.voluntary);
            used.involuntary_switches += thread.involuntary.saturating_sub(before.involuntary);
        }

        let user = self.user.saturating_sub(earlier.user);
        let system = self.system.saturating_sub(earlier.system);
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let ticks_ns = (user + system) * tick_ns;
        let ended = earlier.threads.keys().any(|tid| !self.threads.contains_key(tid));
        // Only the ticks have the time of threads that have ended. If there are more ticks than
        // rounding explains, some threads have both started and ended in between.
        if ended || ticks_ns > ran_ns + TICKS_CUT_OFF * tick_ns {
            ran_ns = ran_ns.max(ticks_ns);
        }

        // If the time is too short to have a tick, it is divided as the process's whole time until
        // now.
        let (user, system) =
            if user + system > 0 { (user, system) } else { (self.user, self.system) };
        let system_share = system as f64 / (user + system).max(1) as f64;
        let total = Duration::from_nanos(ran_ns);
        let in_kernel = total.mul_f64(system_share).min(total);
        used.system += in_kernel;
        used.user += total - in_kernel;
    }
}

impl Thread {
    fn parse(schedstat: &str, status: &str) -> Self {
        let mut times = schedstat.split_whitespace().map(|word| word.parse().unwrap_or(0));
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        Self {
            ran_ns: times.next().unwrap_or(0),
            waited_ns: times.next().unwrap_or(0),
            voluntary: field("voluntary_ctxt_switches:"),
            involuntary: field("nonvoluntary_ctxt_switches:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{self, Command};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Instant;

    use super::super::{burn, process_tree};
    use super::*;

    const TICK: u64 = 10_000_000;

    fn process(user: u64, system: u64, threads: &[(u32, u64)]) -> Process {
        let thread = |&(tid, ran_ns)| (tid, Thread { ran_ns, ..Thread::default() });
        let threads = threads.iter().map(thread).collect();
        Process { user, system, threads, ..Process::default() }
    }

    fn used(earlier: &Process, later: &Process) -> CpuUse {
        let mut used = CpuUse::default();
        later.add_use_since(earlier, &mut used);
        used
    }

    #[test]
    fn a_name_may_be_any_bytes() {
        // The kernel cuts a name off at its 15th byte, even within a character.
        for name in [c"a) S 1 (b) c", c"fourteen bytes\xc3"] {
            let reading = thread::spawn(move || {
                rustix::thread::set_name(name).unwrap();
                let thread = rustix::thread::gettid().as_raw_pid().cast_unsigned();
                ProcessCpu::read(thread).map(|read| read.pids() == [thread])
            });
            assert!(reading.join().unwrap().unwrap());
        }
    }

    #[test]
    fn a_thread_is_parsed() {
        let status =
            "Name:\tvoluntary\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        let thread = Thread::parse("1000 200 3\n", status);
        let expected = Thread { ran_ns: 1000, waited_ns: 200, voluntary: 150, involuntary: 545 };
        assert_eq!(thread, expected);
        assert_eq!(Thread::parse("", ""), Thread::default());
    }

    #[test]
    fn the_total_is_the_threads_and_divides_like_the_ticks() {
        let earlier = process(100, 100, &[(1, 5), (2, 7)]);
        let later = process(103, 101, &[(1, 5 + 4 * TICK), (2, 7)]);
        let used = used(&earlier, &later);
        assert_eq!(used.total(), Duration::from_nanos(4 * TICK));
        assert_eq!(used.system, Duration::from_nanos(TICK));
    }

    #[test]
    fn threads_that_end_are_in_the_ticks_and_nothing_goes_backwards() {
        let earlier = process(100, 0, &[(1, 5), (2, 50 * TICK)]);
        let later = process(110, 0, &[(1, 5)]);
        assert_eq!(used(&earlier, &later).total(), Duration::from_nanos(10 * TICK));
        // A thread that both started and ended in between.
        let earlier = process(100, 0, &[(1, 5)]);
        assert_eq!(used(&earlier, &later).total(), Duration::from_nanos(10 * TICK));
        assert_eq!(used(&later, &earlier).total(), Duration::ZERO);
        // One tick more than the threads have is only rounding.
        let later = process(101, 0, &[(1, 6)]);
        assert_eq!(used(&earlier, &later).total(), Duration::from_nanos(1));
    }

    #[test]
    fn another_process_of_the_same_number_counts_from_its_start() {
        let mut earlier = process(100, 0, &[(1, 100 * TICK)]);
        earlier.started = 1;
        let mut later = process(2, 0, &[(1, 2 * TICK)]);
        later.started = 2;
        let reading = |process| ProcessCpu { processes: BTreeMap::from([(1, process)]) };
        let cpu = reading(later).since(&reading(earlier), 0.2);
        assert!((cpu.share - 0.1).abs() < 1e-9, "{}", cpu.share);
    }

    #[test]
    fn the_time_of_a_thread_that_ended_is_counted() {
        let earlier = ProcessCpu::read(process::id()).unwrap();
        thread::spawn(|| burn(Duration::from_millis(100))).join().unwrap();
        let later = ProcessCpu::read(process::id()).unwrap();
        let used = later.used_since(&earlier);
        assert!(used.total() >= Duration::from_millis(70), "{used:?}");
    }

    #[test]
    fn sleeping_is_a_voluntary_switch_and_a_living_thread_is_exact() {
        let (go, wait) = mpsc::channel::<()>();
        let (burnt, done) = mpsc::channel();
        let worker = thread::spawn(move || {
            burn(Duration::from_millis(60));
            burnt.send(()).unwrap();
            wait.recv().ok();
        });
        let earlier = ProcessCpu::default();
        done.recv().unwrap();
        let later = ProcessCpu::read(process::id()).unwrap();
        let cpu = later.since(&earlier, 0.0);
        assert!(cpu.user + cpu.system >= 0.05, "{cpu:?}");
        assert!(cpu.voluntary_switches > 0 && cpu.share == 0.0);
        drop(go);
        worker.join().unwrap();
    }

    #[test]
    fn a_process_that_is_gone_is_a_clear_error() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        let deadline = Instant::now() + Duration::from_secs(10);
        // The process is a zombie first, and then gone.
        while let Ok(reading) = ProcessCpu::read(pid) {
            assert!(Instant::now() < deadline, "{reading:?}");
            thread::yield_now();
        }
        child.wait().unwrap();
        let error = ProcessCpu::read_tree(pid).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(error.to_string(), format!("process {pid} is gone"));
        assert!(process_tree(pid).is_err());
    }
}
