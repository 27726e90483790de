//! What it costs to wake a thread that sleeps: with CPUs that halt, and with CPUs that are held.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::idle_count::IdleCount;
use crate::latency_device;

/// How many wakes of an idle CPU are timed for one median.
const WAKES: usize = 21;
/// How many wakes are tried for that. A wake that finds the CPU at work shows nothing about a halt.
const TRIES: usize = 3 * WAKES;
/// How many medians are taken of each kind and CPU, in turns.
const ROUNDS: usize = 3;
/// How long a thread sleeps before each wake: long enough for its CPU to halt.
const PAUSE: Duration = Duration::from_micros(200);

/// Starts the second thread of a measurement.
#[doc(hidden)] // For `wakeful`, whose forks wait until its threads have started or ended.
pub type StartThread = fn(Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>;

pub(crate) fn start_thread(run: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("wake-cost".to_owned()).spawn(run)
}

/// Something that keeps CPUs from halting, and releases them.
pub(crate) trait Holding {
    /// # Errors
    /// The kernel refuses.
    fn hold(&mut self) -> io::Result<()>;

    /// # Errors
    /// The kernel refuses.
    fn release(&mut self) -> io::Result<()>;
}

/// `/dev/cpu_dma_latency`.
struct Device<D>(D);

impl<D: AsFd> Holding for Device<D> {
    fn hold(&mut self) -> io::Result<()> {
        latency_device::hold(&self.0, Duration::ZERO)
    }

    fn release(&mut self) -> io::Result<()> {
        latency_device::release(&self.0)
    }
}

/// The duration of a wake on this machine, without and with a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gain {
    /// The median with CPUs that may halt, in the best of several rounds. (In the other rounds,
    /// other programs may have used the CPUs.)
    pub unheld: Duration,
    /// The same with CPUs that are held.
    pub held: Duration,
    /// The CPU was idle at each of these wakes, as far as the kernel says.
    is_of_idle: bool,
}

impl Gain {
    /// Measures the duration of a wake without and with a hold by `device`, on two of the process's
    /// CPUs and two threads. It takes about 60 ms, or up to 250 ms if the CPUs are busy most of the
    /// time. The calling thread is one of the two, and stays pinned. If one of the CPUs is busy, a
    /// hold gains nothing there, so the result is that of the other CPU.
    ///
    /// # Errors
    /// No thread or descriptor is left; or the device refuses the hold.
    pub fn measure(device: impl AsFd) -> io::Result<Self> {
        Self::measure_with(device, start_thread)
    }

    /// Like [`measure`](Self::measure), with the second thread started by `start`.
    ///
    /// # Errors
    /// The same as for [`measure`](Self::measure).
    #[doc(hidden)] // As for `StartThread`.
    pub fn measure_with(device: impl AsFd, start: StartThread) -> io::Result<Self> {
        Self::measure_by(&mut Device(device), None, start)
    }

    /// Like [`measure`](Self::measure), with another hold, on the first two of `cpus` that the
    /// process may use.
    /// `None` means all CPUs.
    ///
    /// # Errors
    /// The same as for [`measure`](Self::measure).
    pub(crate) fn measure_by(
        holding: &mut impl Holding,
        cpus: Option<&[usize]>,
        start: StartThread,
    ) -> io::Result<Self> {
        // The measurement without a hold comes first. After a hold, haltpoll still polls until the
        // CPU has been idle for longer than a sixteenth of a tick.
        let unheld = best_of_rounds(cpus, start)?;
        holding.hold()?;
        let held = best_of_rounds(cpus, start);
        holding.release()?;
        let held = held?;
        let [first, second] = [0, 1].map(|cpu| Self {
            unheld: unheld[cpu].median,
            held: held[cpu].median,
            is_of_idle: unheld[cpu].is_of_idle && held[cpu].is_of_idle,
        });
        Ok(first.or_better(second))
    }

    /// The result of a CPU that was idle. If both were, the one in which a hold shortens a wake
    /// more.
    fn or_better(self, other: Self) -> Self {
        let rank =
            |gain: &Self| (!gain.is_of_idle, gain.held.as_secs_f64() / gain.unheld.as_secs_f64());
        if rank(&other) < rank(&self) { other } else { self }
    }

    /// Returns whether a hold saves at least a quarter, which is more than the noise of the
    /// measurement.
    #[must_use]
    pub fn is_worth_it(&self) -> bool {
        self.held.saturating_mul(4) < self.unheld.saturating_mul(3)
    }
}

/// The duration of wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cost {
    median: Duration,
    /// Whether the CPU was idle at each of them. It is `true` if the kernel does not tell.
    is_of_idle: bool,
}

impl Cost {
    const UNKNOWN: Self = Self { median: Duration::MAX, is_of_idle: false };

    /// The better of two results. The result of a CPU at work counts only if there is no other.
    fn or_better(self, other: Self) -> Self {
        let rank = |cost: &Self| (!cost.is_of_idle, cost.median);
        if rank(&other) < rank(&self) { other } else { self }
    }
}

/// The CPU of the two on which a thread sleeps. The other one rings.
#[derive(Debug, Clone, Copy)]
enum Sleeper {
    First,
    Second,
}

/// Returns the best cost for each of the two sleepers.
fn best_of_rounds(cpus: Option<&[usize]>, start: StartThread) -> io::Result<[Cost; 2]> {
    let mut best = [Cost::UNKNOWN; 2];
    for _ in 0..ROUNDS {
        for (best, sleeper) in best.iter_mut().zip([Sleeper::First, Sleeper::Second]) {
            *best = best.or_better(wake_cost_of(sleeper, cpus, start)?);
        }
    }
    Ok(best)
}

/// Measures the duration of a wake: the median time from the call that wakes a thread until the
/// thread runs. The thread sleeps on a CPU of its own. The function measures two CPUs, and returns
/// the longer time.
///
/// The calling thread stays pinned to one of the process's CPUs, so call this on a thread of its
/// own.
///
/// # Errors
/// No thread can be started, or no descriptor is left.
pub fn wake_cost() -> io::Result<Duration> {
    wake_cost_with(start_thread)
}

/// Like [`wake_cost`], with the second thread started by `start`.
///
/// # Errors
/// The same as for [`wake_cost`].
#[doc(hidden)] // As for `StartThread`.
pub fn wake_cost_with(start: StartThread) -> io::Result<Duration> {
    let [first, second] =
        [wake_cost_of(Sleeper::First, None, start)?, wake_cost_of(Sleeper::Second, None, start)?];
    Ok(first.median.max(second.median))
}

fn wake_cost_of(sleeper: Sleeper, among: Option<&[usize]>, start: StartThread) -> io::Result<Cost> {
    // The thread may run on all CPUs, even if the thread that started it is pinned.
    pin_to(0..CpuSet::MAX_CPU)?;
    let allowed = sched_getaffinity(None)?;
    let is_meant = |cpu: &usize| among.is_none_or(|among| among.contains(cpu));
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).filter(is_meant);
    let (mut first, mut second) = (cpus.next(), cpus.next());
    if let (Sleeper::Second, Some(_)) = (sleeper, second) {
        std::mem::swap(&mut first, &mut second);
    }
    let trial = Arc::new(Trial {
        bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?,
        epoch: Instant::now(),
        rung: AtomicU64::new(0),
        idle_before: AtomicU64::new(0),
        heard: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
        idle: first.and_then(IdleCount::of),
    });
    let (sender, wakes) = mpsc::channel();
    let theirs = trial.clone();
    let sleeper = start(Box::new(move || {
        let pinned = pin(first);
        let _ = sender.send(theirs.wakes().and_then(|cost| pinned.map(|()| cost)));
    }))?;
    // This rings in any case, because the other thread sleeps until it does.
    let pinned = pin(second);
    let rings = trial.ring();
    let _ = sleeper.join();
    let panicked = |_| Err(io::Error::other("the thread that measures has panicked"));
    let wakes = wakes.recv().unwrap_or_else(panicked);
    pinned.and(rings).and(wakes)
}

fn pin(cpu: Option<usize>) -> io::Result<()> {
    cpu.map_or(Ok(()), |cpu| pin_to([cpu]))
}

fn pin_to(cpus: impl IntoIterator<Item = usize>) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.into_iter().for_each(|cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// What the two threads share. One rings, and waits until the other one has noticed.
struct Trial {
    bell: OwnedFd,
    epoch: Instant,
    /// When the last ring was, in nanoseconds.
    rung: AtomicU64,
    /// How often the sleeper's CPU had been idle just before.
    idle_before: AtomicU64,
    /// How many rings the sleeper has noticed.
    heard: AtomicUsize,
    /// Whether one of the two has ended.
    is_over: AtomicBool,
    idle: Option<IdleCount>,
}

impl Trial {
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn ring(&self) -> io::Result<()> {
        for rings in 0..TRIES {
            thread::sleep(PAUSE);
            while self.heard.load(Ordering::Acquire) < rings && !self.is_over() {
                thread::sleep(PAUSE);
            }
            if self.is_over() {
                return Ok(());
            }
            if let Some(before) = self.idle.as_ref().and_then(IdleCount::read) {
                self.idle_before.store(before, Ordering::Relaxed);
            }
            self.rung.store(self.now(), Ordering::Relaxed);
            self.write()?;
        }
        Ok(())
    }

    fn write(&self) -> io::Result<()> {
        Ok(rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).map(drop)?)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn wakes(&self) -> io::Result<Cost> {
        let cost = self.listen();
        self.is_over.store(true, Ordering::Relaxed);
        cost
    }

    fn listen(&self) -> io::Result<Cost> {
        let (mut of_idle, mut all) = (Vec::with_capacity(WAKES), Vec::with_capacity(TRIES));
        while all.len() < TRIES && of_idle.len() < WAKES {
            rustix::io::retry_on_intr(|| rustix::io::read(&self.bell, &mut [0; 8]))?;
            let took = self.now().saturating_sub(self.rung.load(Ordering::Relaxed));
            let idle_after = self.idle.as_ref().and_then(IdleCount::read);
            all.push(took);
            // A stay counts when it ends, and this ring has ended it.
            if idle_after.is_none_or(|after| after > self.idle_before.load(Ordering::Relaxed)) {
                of_idle.push(took);
            }
            self.heard.store(all.len(), Ordering::Release);
        }
        let is_of_idle = of_idle.len() == WAKES;
        let mut took = if is_of_idle { of_idle } else { all };
        took.sort_unstable();
        Ok(Cost { median: Duration::from_nanos(took[took.len() / 2]), is_of_idle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_takes_some_time_and_not_for_ever() {
        let cost = thread::spawn(wake_cost).join().unwrap().unwrap();
        assert!(cost > Duration::ZERO && cost < Duration::from_secs(1), "{cost:?}");
    }

    fn gain(unheld: u64, held: u64) -> Gain {
        let [unheld, held] = [unheld, held].map(Duration::from_micros);
        Gain { unheld, held, is_of_idle: true }
    }

    #[test]
    fn a_cpu_that_is_kept_busy_says_nothing_against_the_other() {
        let (busy, idle) = (gain(10, 10), gain(50, 12));
        assert_eq!((busy.or_better(idle), idle.or_better(busy)), (idle, idle));
        assert_eq!(idle.or_better(gain(0, 0)), idle);
        let at_work = Gain { is_of_idle: false, ..gain(50, 1) };
        assert_eq!((at_work.or_better(idle), idle.or_better(at_work)), (idle, idle));
    }

    #[test]
    fn rounds_in_which_the_cpu_was_at_work_count_only_alone() {
        let cost = |micros, is_of_idle| Cost { median: Duration::from_micros(micros), is_of_idle };
        let best = |costs: &[Cost]| costs.iter().copied().fold(Cost::UNKNOWN, Cost::or_better);
        assert_eq!(best(&[cost(4, false), cost(3, false)]), cost(3, false));
        let mixed = [cost(3, false), cost(20, true), cost(2, false), cost(30, true)];
        assert_eq!(best(&mixed), cost(20, true));
    }

    #[test]
    fn a_quarter_is_worth_it_and_less_is_not() {
        assert!(gain(50, 12).is_worth_it());
        assert!(!gain(50, 38).is_worth_it());
        assert!(!gain(0, 0).is_worth_it());
        assert!(!gain(10, 50).is_worth_it());
    }
}
