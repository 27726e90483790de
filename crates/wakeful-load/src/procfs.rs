//! What the kernel counted: CPU time of processes and of CPUs, from `/proc`.
//!
//! A process's total comes in nanoseconds from the `schedstat` of its threads; a thread that runs at the moment of
//! reading may lack what it ran since the last scheduler tick (4 ms at 250 Hz). `/proc/PID/stat`, in ticks of 10 ms,
//! says how the total divides into user and kernel, and what threads used that ended meanwhile. Readings are
//! cumulative, and only differences of two of them mean anything; a difference is never negative.
//!
//! Unless a kernel counts interrupts apart (`CONFIG_IRQ_TIME_ACCOUNTING`), a thread's time includes the interrupts and
//! softirqs that it was interrupted by, and those of its own packets over loopback.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::results::Cpu;

/// What `stat` may be off by: user and system are each cut off to a tick.
const TICKS_CUT_OFF: u64 = 2;

/// What processes used since each of them started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessCpu {
    processes: BTreeMap<u32, Process>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Process {
    stat: Stat,
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
    /// User and system together.
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
        let process = Process::read(pid)?.filter(|process| !process.stat.has_ended());
        let process = process.ok_or_else(|| gone(pid))?;
        Ok(Self { processes: BTreeMap::from([(pid, process)]) })
    }

    /// Reads what a process and all its living descendants used. What a descendant used between the last reading and
    /// its end is lost.
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

    /// The processes in this reading.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }

    /// What was used since an earlier reading. Processes and threads that started in between count from their start.
    #[must_use]
    pub fn used_since(&self, earlier: &Self) -> CpuUse {
        let mut used = CpuUse::default();
        for (pid, process) in &self.processes {
            let same = |before: &&Process| before.stat.started == process.stat.started;
            let before = earlier.processes.get(pid).filter(same);
            process.add_use_since(before.unwrap_or(&Process::default()), &mut used);
        }
        used
    }

    /// The same as results have it; `seconds` is the time between the two readings.
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
    /// `None` if it is gone.
    fn read(pid: u32) -> io::Result<Option<Self>> {
        let Some(text) = read_if_there(format!("/proc/{pid}/stat"))? else { return Ok(None) };
        let stat = Stat::parse(&text).ok_or_else(|| unexpected("stat", &text))?;
        let mut threads = BTreeMap::new();
        for tid in numbers_in(format!("/proc/{pid}/task")) {
            let status = read_if_there(format!("/proc/{pid}/task/{tid}/status"))?;
            // A kernel without it has no better than ticks.
            let schedstat = read_if_there(format!("/proc/{pid}/task/{tid}/schedstat"))?;
            // Else it ended since the directory was read, and `stat` has what it used.
            if let Some(status) = status {
                threads.insert(tid, Thread::parse(&schedstat.unwrap_or_default(), &status));
            }
        }
        Ok(Some(Self { stat, threads }))
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

        let user = self.stat.user.saturating_sub(earlier.stat.user);
        let system = self.stat.system.saturating_sub(earlier.stat.system);
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let ticks_ns = (user + system) * tick_ns;
        let ended = earlier.threads.keys().any(|tid| !self.threads.contains_key(tid));
        // Threads that have ended are in the ticks alone, and more ticks than can be cut off tell of threads that both
        // started and ended in between.
        if ended || ticks_ns > ran_ns + TICKS_CUT_OFF * tick_ns {
            ran_ns = ran_ns.max(ticks_ns);
        }

        // Too short a time to have a tick divides as the process did until now.
        let (user, system) =
            if user + system > 0 { (user, system) } else { (self.stat.user, self.stat.system) };
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

/// What is needed of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Stat {
    state: char,
    parent: u32,
    /// Ticks in user mode, of threads that have ended too.
    user: u64,
    /// Ticks in the kernel.
    system: u64,
    /// Ticks from boot to its start: tells it from an earlier process of the same number.
    started: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name may have spaces and parentheses itself; nothing after it has.
        let (_, after_name) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            user: fields.get(11)?.parse().ok()?,
            system: fields.get(12)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether nobody has waited for it yet, which is all that is left of it.
    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// A process and all its descendants, itself first.
///
/// # Errors
///
/// [`io::ErrorKind::NotFound`] if there is no such process.
pub fn process_tree(pid: u32) -> io::Result<Vec<u32>> {
    if read_if_there(format!("/proc/{pid}/stat"))?.is_none() {
        return Err(gone(pid));
    }
    // Only kernels with CONFIG_PROC_CHILDREN have it.
    if Path::new("/proc/thread-self/children").exists() {
        tree_by(pid, children_by_thread)
    } else {
        let parents = all_parents()?;
        tree_by(pid, |parent| Ok(children_by_parent(&parents, parent)))
    }
}

fn tree_by(pid: u32, children: impl Fn(u32) -> io::Result<Vec<u32>>) -> io::Result<Vec<u32>> {
    let mut tree = vec![pid];
    let mut seen = BTreeSet::from([pid]);
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        tree.extend(children(parent)?.into_iter().filter(|child| seen.insert(*child)));
        next += 1;
    }
    Ok(tree)
}

fn children_by_thread(pid: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for tid in numbers_in(format!("/proc/{pid}/task")) {
        let text = read_if_there(format!("/proc/{pid}/task/{tid}/children"))?.unwrap_or_default();
        children.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    Ok(children)
}

/// Each process and its parent.
fn all_parents() -> io::Result<Vec<(u32, u32)>> {
    let mut parents = Vec::new();
    for pid in numbers_in("/proc") {
        let text = read_if_there(format!("/proc/{pid}/stat"))?;
        if let Some(stat) = text.and_then(|text| Stat::parse(&text)) {
            parents.push((pid, stat.parent));
        }
    }
    Ok(parents)
}

fn children_by_parent(parents: &[(u32, u32)], parent: u32) -> Vec<u32> {
    parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid).collect()
}

/// What each CPU did since boot, or between two readings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuTimes {
    /// By the CPU's number.
    pub cpus: BTreeMap<usize, CpuTime>,
}

/// What one CPU did, in ticks of which [`rustix::param::clock_ticks_per_second`] are a second (100). Most kernels find
/// out by looking at each timer interrupt: over less than a second, these are samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// User mode, guests included.
    pub user: u64,
    /// User mode of niced processes.
    pub nice: u64,
    /// In the kernel, on behalf of processes or of itself.
    pub system: u64,
    /// Nothing.
    pub idle: u64,
    /// Nothing, while a thread that slept here waits for a disk.
    pub iowait: u64,
    /// Interrupts.
    pub irq: u64,
    /// Softirqs: packets received, timers.
    pub softirq: u64,
    /// It would have run, but the hypervisor ran something else.
    pub steal: u64,
}

impl CpuTime {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.in_tasks() + self.in_interrupts() + self.idle + self.iowait + self.steal
    }

    /// What threads used, the kernel's own included.
    #[must_use]
    pub fn in_tasks(&self) -> u64 {
        self.user + self.nice + self.system
    }

    /// What interrupts and softirqs used.
    #[must_use]
    pub fn in_interrupts(&self) -> u64 {
        self.irq + self.softirq
    }

    fn fields(&mut self) -> [&mut u64; 8] {
        let Self { user, nice, system, idle, iowait, irq, softirq, steal } = self;
        [user, nice, system, idle, iowait, irq, softirq, steal]
    }
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
            // The line of all together has no number.
            let cpu = words.next()?.parse().ok()?;
            let mut time = CpuTime::default();
            for (field, word) in time.fields().into_iter().zip(words) {
                *field = word.parse().ok()?;
            }
            Some((cpu, time))
        });
        Self { cpus: cpus.collect() }
    }

    /// What happened since an earlier reading. CPUs that came in between are left out; a counter that went backwards,
    /// as `iowait` may, counts as nothing.
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

    /// The share that the hypervisor took, of a difference: 0 to 1 for each of `cpus`, summed.
    #[must_use]
    pub fn steal_share(&self, cpus: &[usize]) -> f64 {
        let times = cpus.iter().filter_map(|cpu| self.cpus.get(cpu));
        times.map(|time| time.steal as f64 / time.total().max(1) as f64).sum()
    }
}

/// The names in a directory that are numbers; none if the directory is gone.
pub(crate) fn numbers_in(path: impl AsRef<Path>) -> Vec<u32> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// `None` if it is gone: at opening, or at reading a file that was open when the thread ended.
pub(crate) fn read_if_there(path: impl AsRef<Path>) -> io::Result<Option<String>> {
    match fs::read(path) {
        // Names of processes are bytes.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn gone(pid: u32) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("process {pid} is gone"))
}

fn unexpected(file: &str, text: &str) -> io::Error {
    let line = text.lines().next().unwrap_or_default();
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected {file} in /proc: {line:?}"))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{self, Child, Command, Stdio};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Instant;

    use super::*;

    const TICK: u64 = 10_000_000;

    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            self.0.kill().ok();
            self.0.wait().ok();
        }
    }

    fn process(user: u64, system: u64, threads: &[(u32, u64)]) -> Process {
        let stat = Stat { state: 'S', user, system, ..Stat::default() };
        let thread = |&(tid, ran_ns)| (tid, Thread { ran_ns, ..Thread::default() });
        Process { stat, threads: threads.iter().map(thread).collect() }
    }

    fn used(earlier: &Process, later: &Process) -> CpuUse {
        let mut used = CpuUse::default();
        later.add_use_since(earlier, &mut used);
        used
    }

    /// Burns CPU until this thread has used that much.
    fn burn(time: Duration) {
        let used = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Duration::try_from(now).unwrap()
        };
        let start = used();
        while used() - start < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_name_may_have_spaces_and_parentheses() {
        let text =
            "42 (a) S 1 (b) c) R 7 42 42 0 -1 4194304 1 2 3 4 150 25 9 9 20 0 3 0 9988 1 2 3\n";
        let stat = Stat::parse(text).unwrap();
        let expected = Stat { state: 'R', parent: 7, user: 150, system: 25, started: 9988 };
        assert_eq!(stat, expected);
        assert_eq!(Stat::parse("42 (a"), None);
        assert_eq!(Stat::parse("42 (a) R 7"), None);
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
        // One that both started and ended in between.
        let earlier = process(100, 0, &[(1, 5)]);
        assert_eq!(used(&earlier, &later).total(), Duration::from_nanos(10 * TICK));
        assert_eq!(used(&later, &earlier).total(), Duration::ZERO);
        // A tick more than the threads is but rounding.
        let later = process(101, 0, &[(1, 6)]);
        assert_eq!(used(&earlier, &later).total(), Duration::from_nanos(1));
    }

    #[test]
    fn another_process_of_the_same_number_counts_from_its_start() {
        let mut earlier = process(100, 0, &[(1, 100 * TICK)]);
        earlier.stat.started = 1;
        let mut later = process(2, 0, &[(1, 2 * TICK)]);
        later.stat.started = 2;
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
        // First a zombie, then nothing.
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

    #[test]
    fn a_tree_has_children_and_their_children() {
        let script = "sleep 60 & echo $!; sh -c 'sleep 60 & echo $!; wait' & echo $!; wait";
        let mut child = Command::new("sh");
        let child = child.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut child = Killed(child);
        let stdout = child.0.stdout.take().unwrap();
        let mut expected: Vec<u32> = BufReader::new(stdout)
            .lines()
            .take(3)
            .map(|line| line.unwrap().parse().unwrap())
            .collect();
        let descendants = expected.clone();
        expected.push(child.0.id());
        expected.sort_unstable();

        let mut tree = process_tree(child.0.id()).unwrap();
        assert_eq!(tree[0], child.0.id());
        tree.sort_unstable();
        assert_eq!(tree, expected);
        assert_eq!(ProcessCpu::read_tree(child.0.id()).unwrap().pids(), expected);

        // The other way to find them finds the same.
        let parents = all_parents().unwrap();
        let mut scanned =
            tree_by(child.0.id(), |pid| Ok(children_by_parent(&parents, pid))).unwrap();
        scanned.sort_unstable();
        assert_eq!(scanned, expected);

        for pid in descendants {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
        }
    }

    #[test]
    fn cpus_are_parsed_and_subtracted() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 40 5 6 7 8 0 0\ncpu3 1 1 1 1\nintr 1 2\n";
        let earlier = CpuTimes::parse(text);
        assert_eq!(earlier.cpus.keys().copied().collect::<Vec<_>>(), [0, 3]);
        let time = earlier.cpus[&0];
        assert_eq!((time.in_tasks(), time.in_interrupts(), time.total()), (6, 13, 72));
        let later = CpuTimes::parse("cpu0 2 2 3 47 4 6 8 9\ncpu1 1 1 1 1 1 1 1 1\n");
        let since = later.since(&earlier);
        assert_eq!(since.cpus.len(), 1, "only CPUs of both readings");
        let time = since.cpus[&0];
        assert_eq!((time.user, time.idle, time.iowait, time.softirq, time.steal), (1, 7, 0, 1, 1));
        assert!((since.steal_share(&[0, 9]) - 0.1).abs() < 1e-9);
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
