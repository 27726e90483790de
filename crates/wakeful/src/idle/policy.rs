use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::driver::busy_poll::BusyPoll;

/// What a loop does when nothing is runnable. Set it with
/// [`EventLoopBuilder::idle`](crate::EventLoopBuilder::idle).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum IdlePolicy {
    /// Stay awake while traffic flows, and sleep when it does not. The default; see [`Adaptive`].
    Adaptive(Adaptive),
    /// Sleep in the kernel until something happens. Costs no CPU; the first event after a sleep
    /// pays for the thread's wake: tens of microseconds on a virtual machine.
    Park,
    /// Ask again and again without sleeping. The shortest latency, at 100 % of a CPU for ever. Only
    /// for a CPU that nothing else needs: against a busy neighbour on the same CPU, spinning is a
    /// thousand times slower than parking. Under a real-time scheduling policy (SCHED_FIFO,
    /// SCHED_RR, SCHED_DEADLINE) the loop takes the CPU from every ordinary thread, including
    /// kernel threads that the machine needs.
    Spin,
    /// Sleep, and have the kernel busy-poll the network card meanwhile, instead of waiting for its
    /// interrupt. For real network cards; on loopback and virtual devices without NAPI it is
    /// [`Park`](Self::Park). See [`BusyPoll`].
    KernelBusyPoll(BusyPoll),
    /// Sleep, while a thread of the lowest kind (SCHED_IDLE) spins on each CPU on which the loop
    /// may run: anything else preempts it, and the CPU never halts, so that a wake need not bring
    /// it back. On the project's virtual machine this takes a parked median from about 50 µs to 27.
    /// It costs all the time that these CPUs would have been idle: their power, their turbo, what a
    /// hypervisor may bill, and in a cgroup with a quota that quota. Without cgroups or others on
    /// the CPU, ordinary work is not slower for it. A process ends with its last thread, and such a
    /// thread needs its CPU to end: where others use all CPUs, that takes seconds. Those threads
    /// are SCHED_IDLE also when the loop's own thread has a real-time policy. A thread under
    /// SCHED_DEADLINE may not start others (sched(7)): build the loop before.
    KeepWarm,
    /// Sleep, while the kernel keeps the machine's CPUs from halting: they poll in its own idle
    /// loop, and yield at once to any thread that wants to run. A spin's latency at a parked loop's
    /// CPU time. From the first event on until there was none for a while; see [`Hold`].
    Hold(Hold),
}

impl IdlePolicy {
    /// [`IdlePolicy::Adaptive`] with its default settings.
    pub const ADAPTIVE: Self = Self::Adaptive(Adaptive::DEFAULT);
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self::ADAPTIVE
    }
}

/// The settings of [`IdlePolicy::Adaptive`]: when nothing is runnable, spin for a window, then
/// sleep. The window is learnt from the gaps between the end of work and the next event, as spins
/// meet them; without traffic, and where no window pays, the loop sleeps at once.
///
/// A spinning loop yields its CPU on every empty poll. It sleeps, for a while that grows up to 0.13
/// s, when it notices that somebody else needs the CPU: its clock jumps between two polls while the
/// kernel has its thread wait for a CPU. Of two loops of a process that meet on one CPU one spins.
/// A cgroup's CPU quota (v1 or v2) lowers [`max_cpu`](Self::max_cpu) so that spinning does not
/// cause throttling.
///
/// **Where a keeper of CPUs runs on the machine** (`wakeful keeper`) and lets this process hold
/// some, the loop does not spin: it sleeps, and its CPU is kept from halting for as long as the
/// spin would have lasted, or a tick of the kernel (4 ms) if that is longer. That is about as fast,
/// and costs no CPU time. The keeper is looked for when there is traffic, every 10 s, at the path
/// in the environment variable `WAKEFUL_KEEPER`, or at `/run/wakeful/keeper.sock` without it; an
/// empty variable is no keeper. [`never_hold`](Self::never_hold) spins all the same.
///
/// A loop whose thread has a real-time scheduling policy (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE)
/// does not spin, because `sched_yield` does not let an ordinary thread run then. The policy may
/// change while the loop runs; a spinning loop looks at it once a second.
///
/// ```
/// use std::time::Duration;
/// use wakeful::{EventLoop, IdlePolicy};
/// use wakeful::idle::Adaptive;
///
/// # fn main() -> std::io::Result<()> {
/// let frugal = Adaptive::new().max_cpu(0.3).max_window(Duration::from_micros(200));
/// let event_loop = EventLoop::builder().idle(IdlePolicy::Adaptive(frugal)).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adaptive {
    pub(crate) hit_rate: f64,
    pub(crate) max_window: Option<Duration>,
    pub(crate) max_cpu: f64,
    pub(crate) never_holds: bool,
}

impl Adaptive {
    const DEFAULT: Self =
        Self { hit_rate: 0.999, max_window: None, max_cpu: 1.0, never_holds: false };

    /// The defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self::DEFAULT
    }

    /// Which share of the events a spin should meet, 0.05 to 0.9999 (default 0.999): the window is
    /// the shortest that does. With events at random times, a spin that meets half of them costs
    /// half a CPU and wins the median, 0.9 costs 0.9 and wins the 90th percentile, and so on.
    #[must_use]
    pub const fn hit_rate(mut self, share: f64) -> Self {
        self.hit_rate = share;
        self
    }

    /// The longest spin, up to 16.7 ms; zero never spins. By default 25 times what a wake from
    /// sleep takes here, which is measured once per process, on two threads of its own, as soon as
    /// there is traffic: 0.2 to 2 ms, and 1 ms until it is known. If even this window does not meet
    /// two events in five, the loop sleeps at once.
    #[must_use]
    pub const fn max_window(mut self, window: Duration) -> Self {
        self.max_window = Some(window);
        self
    }

    /// The share of a CPU that this loop may spend on spinning, 0 to 1 (default 1). Over any second
    /// it is exceeded by a fiftieth of itself at most.
    #[must_use]
    pub const fn max_cpu(mut self, share: f64) -> Self {
        self.max_cpu = share;
        self
    }

    /// Spins also where the machine's keeper would hold the CPU instead.
    #[must_use]
    pub const fn never_hold(mut self) -> Self {
        self.never_holds = true;
        self
    }

    /// Not with a share of nothing (or no number), nor with no window.
    pub(crate) fn may_spin(&self) -> bool {
        self.max_cpu > 0.0 && self.max_window != Some(Duration::ZERO)
    }
}

impl Default for Adaptive {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The settings of [`IdlePolicy::Hold`]: sleep at once, and have no CPU halt while events come.
///
/// **The bill.** `top` and cgroups count nothing: the CPUs are idle. But they poll, so they use
/// power and their hyper-thread siblings' share; a hypervisor sees them busy, and a machine with
/// CPU credits pays with those. `/dev/cpu_dma_latency` holds all CPUs of the machine at once. So it
/// is used on machines of at most four CPUs of which at least half are the process's, unless
/// [`whole_machine`](Self::whole_machine) says otherwise.
///
/// **Before it is used** the loop finds out, once in a process and as soon as there is traffic,
/// whether a wake gets shorter by it here. If not, or where the device may not be used, the loop
/// parks as with [`IdlePolicy::Park`], and a line of the log says so once, with what permits it.
/// `wakeful awake --probe` says the same.
///
/// **How it ends.** The kernel gives the CPUs back when [`silence`](Self::silence) has passed
/// without an event, or sooner if held time has a [`hold_cost`](Self::hold_cost), also if somebody
/// else's loop drives this one and takes no more turns; when the loop ends, and when its process
/// does, however that comes. A process that is stopped (SIGSTOP) in the midst of traffic holds
/// until it goes on. A forked child holds nothing.
///
/// On battery, and for 10 s after the hypervisor took a tenth of the CPUs' time, nothing is held.
/// [`LoopMetrics::hold`](crate::LoopMetrics::hold) says whether CPUs are held, and why not.
///
/// ```
/// use std::time::Duration;
/// use wakeful::{EventLoop, IdlePolicy};
/// use wakeful::idle::Hold;
///
/// # fn main() -> std::io::Result<()> {
/// let hold = Hold::new().silence(Duration::from_millis(20));
/// let event_loop = EventLoop::builder().idle(IdlePolicy::Hold(hold)).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub(crate) silence: Duration,
    pub(crate) tolerated: Duration,
    pub(crate) whole_machine: bool,
    /// In millionths, so that settings can be equal.
    cost: u32,
}

/// A held microsecond is worth as much as a spun one, in millionths.
const AS_A_SPIN: u32 = 1_000_000;

impl Hold {
    const DEFAULT: Self = Self {
        silence: Duration::from_millis(50),
        tolerated: Duration::ZERO,
        whole_machine: false,
        cost: 0,
    };

    /// The defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self::DEFAULT
    }

    /// For how long nothing must have happened until the CPUs may halt again: 1 ms to 1 s (default
    /// 50 ms). Timers are no event. A loop that meets an event every 40 ms is held all the time.
    #[must_use]
    pub const fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// What a held microsecond costs, as a share of what a spun one does: 0 to 1, in steps of a
    /// millionth (default 0: nothing). A number outside becomes the nearest in it, NaN the default.
    ///
    /// At 0 every hold lasts for a whole [`silence`](Self::silence). Above it the loop learns how
    /// long the gaps between events are, and holds only where that is worth it: an event that meets
    /// a CPU that was held is worth a spin of 50 wakes' time, or a hold of that time divided by its
    /// cost. So events at random times are held up to a mean gap of that length, and no hold lasts
    /// for longer without an event (or than a tick of the kernel, 4 ms, if that is longer). Within
    /// these limits it is the shortest that meets 999 of 1,000 events, or the one that is worth
    /// most. At 1 a loop holds where [`Adaptive`] would spin.
    ///
    /// | cost | it holds from | for up to | where a wake takes |
    /// |---|---|---|---|
    /// | 0.01 | 10 random events a second | 50 ms (the silence) | 20 µs |
    /// | 0.1 | 100 | 10 ms | 20 µs |
    /// | 1 | 1,000 | 4 ms | 20 µs |
    /// | 0.1 | 50 | 20 ms | 40 µs |
    ///
    /// What a wake takes is measured once per process, on two threads of its own that live for some
    /// 20 ms, as soon as there is traffic, and counts as 8 to 80 µs; until then nothing is held.
    /// What power, a hyper-thread sibling, or a hypervisor's bill cost is not known here;
    /// `docs/idle.md` says how to choose. With a cost each sleep reads the clock twice more.
    #[must_use]
    pub const fn hold_cost(mut self, share: f64) -> Self {
        // No number is 0, and so is a negative one.
        let millionths = (share * AS_A_SPIN as f64 + 0.5) as u32;
        self.cost = if millionths > AS_A_SPIN { AS_A_SPIN } else { millionths };
        self
    }

    /// See [`hold_cost`](Self::hold_cost). `None`: it costs nothing.
    pub(crate) fn cost(self) -> Option<f64> {
        (self.cost > 0).then(|| f64::from(self.cost) / f64::from(AS_A_SPIN))
    }

    /// How long a CPU may take to come back, in whole microseconds (default 0: it polls). More
    /// keeps shallow states on bare metal, which cost less power.
    #[must_use]
    pub const fn tolerated(mut self, latency: Duration) -> Self {
        self.tolerated = latency;
        self
    }

    /// Hold all CPUs also of a machine that is not this process's own.
    #[must_use]
    pub const fn whole_machine(mut self) -> Self {
        self.whole_machine = true;
        self
    }
}

impl Default for Hold {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The policies' names.
const NAMES: [(&str, IdlePolicy); 6] = [
    ("adaptive", IdlePolicy::ADAPTIVE),
    ("park", IdlePolicy::Park),
    ("spin", IdlePolicy::Spin),
    ("busy-poll", IdlePolicy::KernelBusyPoll(BusyPoll::DEFAULT)),
    ("keep-warm", IdlePolicy::KeepWarm),
    ("hold", IdlePolicy::Hold(Hold::DEFAULT)),
];

impl fmt::Display for IdlePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = std::mem::discriminant(self);
        let name = NAMES.iter().find(|(_, policy)| std::mem::discriminant(policy) == of);
        f.write_str(name.map_or("?", |(name, _)| name))
    }
}

/// The name is none of the policies'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such idle policy: {0:?}; use adaptive, hold, park, spin, busy-poll or keep-warm")]
pub struct UnknownIdlePolicy(String);

/// By name, with default settings.
impl FromStr for IdlePolicy {
    type Err = UnknownIdlePolicy;

    fn from_str(name: &str) -> Result<Self, UnknownIdlePolicy> {
        let known = NAMES.iter().find(|(known, _)| *known == name);
        known.map(|(_, policy)| *policy).ok_or_else(|| UnknownIdlePolicy(name.to_owned()))
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_hold_cost_out_of_range_becomes_the_nearest_in_it() {
        assert_eq!(Hold::new(), Hold::new().hold_cost(0.0));
        for (given, cost) in [
            (f64::NAN, None),
            (-1.0, None),
            (1e-9, None),
            (0.25, Some(0.25)),
            (1.0, Some(1.0)),
            (f64::INFINITY, Some(1.0)),
        ] {
            assert_eq!(Hold::new().hold_cost(given).cost(), cost, "{given}");
        }
    }
}
