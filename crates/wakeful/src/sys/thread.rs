//! What the kernel knows of this thread.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, getpid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::limits::explain_call;
use super::thread_edges::{Edge, Ends};

/// The CPUs of this thread's affinity mask.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    cpus_of(None)
}

/// The CPUs of the main thread's affinity mask: those of the process, unless the program has pinned
/// that thread.
pub(crate) fn cpus_of_main_thread() -> io::Result<Vec<usize>> {
    cpus_of(Some(getpid()))
}

fn cpus_of(thread: Option<Pid>) -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(thread).map_err(explain_call("sched_getaffinity"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Pins this thread to those of these CPUs that exist.
pub(crate) fn pin_to(cpus: impl IntoIterator<Item = usize>) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.into_iter().for_each(|cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Starts a thread with this name. A child that is forked while this thread starts or ends can
/// start threads of its own.
///
/// # Errors
/// A limit is reached, or the kernel refuses the thread; the message says why, as far as that can
/// be known. Or the name has a NUL byte, for which the standard library would panic.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    if name.contains('\0') {
        let text = format!("cannot start the thread {name:?}: its name has a NUL byte");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let starting = Edge::new();
    let run = move || {
        drop(starting);
        let _ends = Ends;
        run()
    };
    Builder::new().name(name.to_owned()).spawn(run).map_err(|error| cannot_start(name, &error))
}

fn cannot_start(name: &str, error: &io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(code) => why_no_thread(code, policy() == libc::SCHED_DEADLINE, has_room_for_stack()),
        None => None,
    };
    match why {
        Some((kind, why)) => {
            let text = format!("cannot start the thread {name:?}: {error}: {why}");
            io::Error::new(kind, text)
        }
        None => io::Error::new(error.kind(), format!("cannot start the thread {name:?}: {error}")),
    }
}

/// The reason for an error of `pthread_create`. The kernel returns EAGAIN for each limit and for a
/// SCHED_DEADLINE thread, and the C library returns it when there is no memory for a stack.
fn why_no_thread(
    code: i32,
    is_deadline: bool,
    has_room: bool,
) -> Option<(io::ErrorKind, &'static str)> {
    // The kind is never `WouldBlock`, because nothing tells when to try again.
    match code {
        libc::EAGAIN | libc::EPERM | libc::EBUSY if is_deadline => Some((
            io::ErrorKind::Unsupported,
            "this thread has the policy SCHED_DEADLINE, under which the kernel starts no other. Set the policy with the flag \
             SCHED_FLAG_RESET_ON_FORK (chrt --reset-on-fork)",
        )),
        libc::EAGAIN | libc::ENOMEM if !has_room => Some((
            io::ErrorKind::OutOfMemory,
            "there is no room for its stack. Raise RLIMIT_AS (ulimit -v) or RLIMIT_DATA (ulimit -d), or give the machine more memory \
             (vm.overcommit_memory, vm.max_map_count)",
        )),
        libc::EAGAIN => Some((
            io::ErrorKind::QuotaExceeded,
            "a limit of threads or memory is reached. Raise RLIMIT_NPROC (ulimit -u), pids.max of the \
             cgroup (TasksMax of systemd) or kernel.threads-max, or end other processes",
        )),
        libc::EPERM | libc::ENOSYS => Some((
            io::ErrorKind::PermissionDenied,
            "the system call clone3 or clone is refused, as a seccomp filter does",
        )),
        _ => None,
    }
}

/// Is there room for a thread's stack now? It is as large as the standard library's stacks, with
/// its guard page.
fn has_room_for_stack() -> bool {
    let asked = std::env::var("RUST_MIN_STACK").ok().and_then(|bytes| bytes.parse().ok());
    let size = asked.unwrap_or(2_usize << 20).saturating_add(4096);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    // SAFETY: a mapping of its own, at an address that the kernel chooses; nobody else knows of it,
    // and it is unmapped below.
    unsafe {
        let stack = libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0);
        stack != libc::MAP_FAILED && libc::munmap(stack, size) == 0
    }
}

/// How much of a thread's CPU time others took while the thread was ready to run. Time that a
/// hypervisor takes is not included.
#[derive(Debug)]
pub(crate) struct RunQueue {
    /// The thread's scheduler statistics. `None` without `/proc`, or if the kernel keeps none.
    file: Option<File>,
    waited: u64,
    switches: u64,
}

/// The result of [`RunQueue::look`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// For how many nanoseconds the thread waited for a CPU, also after a sleep. `None`: unknown.
    pub(crate) waited: Option<u64>,
    /// How often the thread lost its CPU without a sleep: to a thread that preempted it, or by a
    /// `sched_yield` that let another one run.
    pub(crate) times: u64,
}

impl RunQueue {
    /// For this thread, which alone may call [`look`](Self::look).
    pub(crate) fn of_this_thread() -> Self {
        let file = File::open("/proc/thread-self/schedstat").ok();
        Self::with(file.filter(|file| waits(file).is_some()))
    }

    /// For this thread, without a descriptor. It only tells how often the thread lost its CPU.
    #[cfg(feature = "internals")]
    pub(crate) fn without_descriptor() -> Self {
        Self::with(None)
    }

    fn with(file: Option<File>) -> Self {
        let mut queue = Self { file, waited: 0, switches: 0 };
        queue.look();
        queue
    }

    /// What was taken since the last call. Two system calls.
    pub(crate) fn look(&mut self) -> Taken {
        let since = |seen: &mut u64, total: u64| {
            let since = total.saturating_sub(*seen);
            *seen = total;
            since
        };
        let total = self.file.as_ref().map(|file| waits(file).unwrap_or(self.waited));
        let waited = total.map(|total| since(&mut self.waited, total));
        Taken { waited, times: since(&mut self.switches, involuntary_switches()) }
    }
}

fn waits(file: &File) -> Option<u64> {
    let mut text = [0; 64];
    let length = file.read_at(&mut text, 0).ok()?;
    waits_in(std::str::from_utf8(&text[..length]).ok()?)
}

/// The text has the time on a CPU, the time waiting for one, and the number of turns on a CPU. The
/// thread that asks has run, so if the last number is 0, the kernel does not count.
fn waits_in(statistics: &str) -> Option<u64> {
    let mut numbers = statistics.split_ascii_whitespace().map(str::parse::<u64>);
    let waited = numbers.nth(1)?.ok()?;
    let turns = numbers.next()?.ok()?;
    (turns > 0).then_some(waited)
}

/// How often this thread lost its CPU involuntarily.
fn involuntary_switches() -> u64 {
    usage_of(libc::RUSAGE_THREAD).map_or(0, |usage| usage.ru_nivcsw.unsigned_abs())
}

fn usage_of(whom: libc::c_int) -> Option<libc::rusage> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills in the whole structure, or says that it did not.
    unsafe { (libc::getrusage(whom, usage.as_mut_ptr()) == 0).then(|| usage.assume_init()) }
}

/// Ends this thread, the only one of the parent's threads that a forked child has. The child then
/// ends with status 0, unless it has started other threads.
///
/// Nothing else that belongs to the end of a thread runs, because the standard library takes a lock
/// there, and so may a destructor of a thread-local. A thread of the parent may have held such a
/// lock at the fork.
pub(crate) fn end_in_child() -> ! {
    loop {
        // SAFETY: nothing of this thread is used any more. Nobody can join it: its handle is its
        // parent's.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

/// How much CPU time this process has used. (It does not use rustix, which searches for the
/// kernel's vDSO in a way that valgrind does not support.)
pub(crate) fn process_time() -> Duration {
    let Some(usage) = usage_of(libc::RUSAGE_SELF) else { return Duration::ZERO };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs())
            + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// The CPU on which this thread is running. No system call if the C library has a better way.
#[inline]
pub(crate) fn current_cpu() -> Option<usize> {
    // SAFETY: it takes nothing and returns a number.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Does the kernel run this thread before all ordinary ones (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE)?
/// Then `sched_yield` does not let an ordinary thread run. One system call.
pub(crate) fn is_real_time() -> bool {
    // Only a seccomp filter refuses the call (-1).
    let policy = policy();
    policy >= 0
        && matches!(
            policy & !libc::SCHED_RESET_ON_FORK,
            libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE
        )
}

/// If this thread has a real-time policy, lets other threads of its priority run first on its CPU.
/// One system call without such a policy, and two with it.
pub(crate) fn yield_to_equals() {
    if is_real_time() {
        rustix::thread::sched_yield();
    }
}

/// This thread's scheduling policy, with its flag SCHED_RESET_ON_FORK.
fn policy() -> libc::c_int {
    // Not the C library's function, which fails in musl: POSIX means the process there, not the
    // thread.
    // SAFETY: it takes a number and returns one.
    unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) as libc::c_int }
}

/// From now on this thread runs only when no other thread wants its CPU (SCHED_IDLE).
pub(crate) fn run_only_when_idle() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads one `sched_param` from the pointer.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Signals that a fault of the thread itself raises (blocking them would hide a stack overflow),
/// and a profiler's signal.
const OF_A_THREAD: [libc::c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGPROF,
];

/// The signals that a thread blocks.
#[derive(Clone, Copy)]
pub(crate) struct SignalMask(libc::sigset_t);

impl SignalMask {
    pub(crate) fn of_this_thread() -> Self {
        let mut mask = Self::empty();
        // SAFETY: the call changes no mask, and fills in `mask`.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut mask.0) };
        mask
    }

    /// All signals that are sent to a process.
    fn of_a_process() -> Self {
        let mut mask = Self::empty();
        // SAFETY: the calls change `mask`. None fails with these arguments.
        unsafe {
            libc::sigfillset(&raw mut mask.0);
            OF_A_THREAD.iter().for_each(|signal| _ = libc::sigdelset(&raw mut mask.0, *signal));
        }
        mask
    }

    fn empty() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the call fills in `set`.
        Self(unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        })
    }

    /// Gives this thread the mask while `f` runs, and after that its earlier one, even if `f`
    /// panics.
    pub(crate) fn within<T>(self, f: impl FnOnce() -> T) -> T {
        let _before = Before(self.replace());
        f()
    }

    /// Returns the earlier mask.
    fn replace(self) -> Self {
        let mut before = Self::empty();
        // SAFETY: the call reads one mask and fills in the other.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, &raw mut before.0);
        }
        before
    }
}

struct Before(SignalMask);

impl Drop for Before {
    fn drop(&mut self) {
        self.0.replace();
    }
}

/// The threads that `start` starts block the signals that are sent to a process. The kernel gives
/// such a signal to any thread that does not block it, and the program does not know of these
/// threads. A program that reads SIGTERM by sigwait(3) or signalfd(2) would be killed by the
/// signal.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    SignalMask::of_a_process().within(start)
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn statistics_that_the_kernel_does_not_keep_are_none() {
        assert_eq!(waits_in("694437 1200 2\n"), Some(1200));
        assert_eq!(waits_in("694437 0 2\n"), Some(0));
        assert_eq!(waits_in("0 0 0\n"), None);
        assert_eq!(waits_in(""), None);
        assert_eq!(waits_in("1 many 2"), None);
    }

    #[test]
    fn a_thread_that_cannot_be_started_names_the_limits() {
        let error = cannot_start("x", &io::Error::from_raw_os_error(libc::EAGAIN));
        let text = error.to_string();
        assert_ne!(error.kind(), io::ErrorKind::WouldBlock);
        for limit in ["\"x\"", "RLIMIT_NPROC", "pids.max", "threads-max"] {
            assert!(text.contains(limit), "{text}");
        }
    }

    #[test]
    fn each_cause_why_there_is_no_thread_is_named() {
        let named =
            |code, is_deadline, has_room| why_no_thread(code, is_deadline, has_room).unwrap().1;
        for code in [libc::EAGAIN, libc::EPERM, libc::EBUSY] {
            assert!(named(code, true, true).contains("SCHED_DEADLINE"));
        }
        for code in [libc::EAGAIN, libc::ENOMEM] {
            assert!(named(code, false, false).contains("RLIMIT_AS"));
        }
        assert!(named(libc::EAGAIN, false, true).contains("pids.max"));
        assert!(named(libc::EPERM, false, true).contains("seccomp"));
        assert!(has_room_for_stack());
    }

    #[test]
    fn each_switch_is_seen_once() {
        let mut queue = RunQueue { file: None, waited: 0, switches: u64::MAX };
        let taken = queue.look();
        assert_eq!(taken, Taken { waited: None, times: 0 }, "a count that seems to fall is none");
        // One switch has been seen, and more may come meanwhile.
        let before = involuntary_switches();
        queue.switches = before.wrapping_sub(1);
        let times = queue.look().times;
        assert!(before == 0 || (1..=involuntary_switches() - before + 1).contains(&times));
    }
}
