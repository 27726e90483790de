//! What it costs to wake a thread that sleeps: with CPUs that halt, and with CPUs that are held.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::latency_device;

/// Wakes that are timed for one median.
const WAKES: usize = 21;
/// Medians of each kind and CPU, in turns.
const ROUNDS: usize = 3;
/// So long a thread sleeps in front of each: long enough for its CPU to halt.
const PAUSE: Duration = Duration::from_micros(200);

/// Something that keeps CPUs from halting, and lets them.
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

/// What a wake takes here without and with a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gain {
    /// The median of the best of some rounds, with CPUs that may halt: in the others somebody else
    /// had the CPUs too.
    pub unheld: Duration,
    /// The same with CPUs that are held.
    pub held: Duration,
}

impl Gain {
    const UNKNOWN: Self = Self { unheld: Duration::MAX, held: Duration::MAX };

    /// Measures on two of the process's CPUs, on two threads, which takes some 60 ms. The calling
    /// thread is one of them, and stays pinned. Where somebody keeps one of the CPUs busy nothing
    /// is gained there: that of the other one counts.
    ///
    /// # Errors
    /// No thread, no descriptor, or the device refuses.
    pub fn measure(device: impl AsFd) -> io::Result<Self> {
        Self::measure_by(&mut Device(device), None)
    }

    /// The same with another hold, on the first two of `cpus` that the process may use; `None` is
    /// all.
    ///
    /// # Errors
    /// As for [`measure`](Self::measure).
    pub(crate) fn measure_by(
        holding: &mut impl Holding,
        cpus: Option<&[usize]>,
    ) -> io::Result<Self> {
        let mut gains = [Self::UNKNOWN; 2];
        for _ in 0..ROUNDS {
            for (gain, from) in gains.iter_mut().zip([Sleeper::First, Sleeper::Second]) {
                gain.unheld = gain.unheld.min(wake_cost_of(from, cpus)?);
                holding.hold()?;
                let held = wake_cost_of(from, cpus);
                holding.release()?;
                gain.held = gain.held.min(held?);
            }
        }
        let [first, second] = gains;
        Ok(first.or_better(second))
    }

    /// The one in which a wake is shortened to the smaller part.
    fn or_better(self, other: Self) -> Self {
        let part = |gain: &Self| gain.held.as_secs_f64() / gain.unheld.as_secs_f64();
        if part(&other) < part(&self) { other } else { self }
    }

    /// A quarter at least, which is more than such a measurement's noise.
    #[must_use]
    pub fn is_worth_it(&self) -> bool {
        self.held.saturating_mul(4) < self.unheld.saturating_mul(3)
    }
}

/// Which of two CPUs is slept on. The other one rings.
#[derive(Debug, Clone, Copy)]
enum Sleeper {
    First,
    Second,
}

/// How long it takes, in the median, until a thread that slept on a CPU of its own runs, on that of
/// two CPUs where it takes longer. Pins the calling thread to one of the process's CPUs.
///
/// # Errors
/// No thread can be started, or no descriptor is left.
pub fn wake_cost() -> io::Result<Duration> {
    Ok(wake_cost_of(Sleeper::First, None)?.max(wake_cost_of(Sleeper::Second, None)?))
}

fn wake_cost_of(sleeper: Sleeper, among: Option<&[usize]>) -> io::Result<Duration> {
    // Not only where the thread is pinned that asked for it.
    pin_to(0..CpuSet::MAX_CPU)?;
    let allowed = sched_getaffinity(None)?;
    let is_meant = |cpu: &usize| among.is_none_or(|among| among.contains(cpu));
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).filter(is_meant);
    let (mut first, mut second) = (cpus.next(), cpus.next());
    if let (Sleeper::Second, Some(_)) = (sleeper, second) {
        std::mem::swap(&mut first, &mut second);
    }
    // One read a ring, also behind two of them.
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
    let (rung, epoch) = (AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        let sleeper = thread::Builder::new().name("wake-cost".to_owned());
        let sleeper = sleeper.spawn_scoped(scope, || {
            let pinned = pin(first);
            wakes(&bell, &rung, epoch).and_then(|took| pinned.map(|()| took))
        })?;
        // In any case it rings: the other one sleeps until it does.
        let pinned = pin(second);
        let rings = ring(&bell, &rung, epoch);
        let wakes = sleeper.join().unwrap_or_else(|_| Err(io::Error::other("a panic")));
        pinned.and(rings).and(wakes)
    })
}

fn pin(cpu: Option<usize>) -> io::Result<()> {
    cpu.map_or(Ok(()), |cpu| pin_to([cpu]))
}

fn pin_to(cpus: impl IntoIterator<Item = usize>) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.into_iter().for_each(|cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn ring(bell: &OwnedFd, rung: &AtomicU64, epoch: Instant) -> io::Result<()> {
    for _ in 0..WAKES {
        thread::sleep(PAUSE);
        rung.store(nanoseconds(epoch), Ordering::Relaxed);
        rustix::io::write(bell, &1_u64.to_ne_bytes())?;
    }
    Ok(())
}

fn wakes(bell: &OwnedFd, rung: &AtomicU64, epoch: Instant) -> io::Result<Duration> {
    let mut took = [0; WAKES];
    for took in &mut took {
        rustix::io::retry_on_intr(|| rustix::io::read(bell, &mut [0; 8]))?;
        *took = nanoseconds(epoch).saturating_sub(rung.load(Ordering::Relaxed));
    }
    took.sort_unstable();
    Ok(Duration::from_nanos(took[WAKES / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_takes_some_time_and_not_for_ever() {
        let cost = thread::spawn(wake_cost).join().unwrap().unwrap();
        assert!(cost > Duration::ZERO && cost < Duration::from_secs(1), "{cost:?}");
    }

    #[test]
    fn a_cpu_that_is_kept_busy_says_nothing_against_the_other() {
        let gain = |unheld, held| Gain {
            unheld: Duration::from_micros(unheld),
            held: Duration::from_micros(held),
        };
        let (busy, idle) = (gain(10, 10), gain(50, 12));
        assert_eq!((busy.or_better(idle), idle.or_better(busy)), (idle, idle));
        assert_eq!(idle.or_better(gain(0, 0)), idle);
    }

    #[test]
    fn a_quarter_is_worth_it_and_less_is_not() {
        let gain = |unheld, held| Gain {
            unheld: Duration::from_micros(unheld),
            held: Duration::from_micros(held),
        };
        assert!(gain(50, 12).is_worth_it());
        assert!(!gain(50, 38).is_worth_it());
        assert!(!gain(0, 0).is_worth_it());
        assert!(!gain(10, 50).is_worth_it());
    }
}
