use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::driver::busy_poll::BusyPoll;

/// What a loop does when nothing is runnable. Set it with
/// [`EventLoopBuilder::idle`](crate::EventLoopBuilder::idle).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum IdlePolicy {
    /// Stay awake while traffic flows, and sleep otherwise. This is the default. See [`Adaptive`].
    Adaptive(Adaptive),
    /// Sleep in the kernel until something happens. This costs no CPU time, but the first event
    /// after a sleep waits for the thread to wake: tens of microseconds on a virtual machine.
    Park,
    /// Poll without ever sleeping. This has the shortest latency, and permanently uses 100 % of a
    /// CPU. Use it only on a CPU that nothing else needs: if another thread is busy on the same
    /// CPU, spinning is a thousand times slower than parking. Under a real-time scheduling policy
    /// (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE) the loop takes the CPU from every ordinary thread,
    /// including kernel threads that the machine needs. It yields to threads of its own priority:
    /// the other threads of the process run even if they share its only CPU.
    Spin,
    /// Let the kernel busy-poll the network card for a while, instead of waiting for its interrupt,
    /// and then sleep. The polling takes CPU time. This is for real network cards: on loopback and
    /// virtual devices without NAPI it is the same as [`Park`](Self::Park). See [`BusyPoll`].
    KernelBusyPoll(BusyPoll),
    /// Sleep, while a thread of the lowest scheduling class (SCHED_IDLE) spins on each CPU on which
    /// the loop may run. Any other thread preempts it, and the CPU never halts, so a wake does not
    /// wait for the CPU. On the project's virtual machine this reduces the median latency of a
    /// parked loop from about 50 µs to 27 µs. It uses all the idle time of these CPUs: it costs
    /// power, turbo frequency, time that a hypervisor may bill, and the quota of the cgroup. It
    /// does not slow down ordinary work, unless the CPU is shared with other programs or cgroups.
    ///
    /// A process ends with its last thread, and a SCHED_IDLE thread needs CPU time to end. If other
    /// programs use all CPUs, that takes seconds. The threads are SCHED_IDLE even if the loop's own
    /// thread has a real-time policy. A thread under SCHED_DEADLINE may not start other threads
    /// (sched(7)), so build the loop before you set that policy.
    KeepWarm,
    /// Sleep while the kernel keeps the machine's CPUs from halting. The CPUs poll in the kernel's
    /// idle loop, and yield at once to any thread that wants to run. This takes no more CPU time
    /// than parking. The measured median latency was 1.1 to 1.5 times that of spinning, and up to
    /// 2.2 times on a slower machine (`docs/idle.md`). It costs power. The hold begins with the
    /// first event, and ends when no event has arrived for a while. See [`Hold`].
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

/// The settings of [`IdlePolicy::Adaptive`]: when nothing is runnable, the loop spins for a short
/// time, the *window*, and then sleeps.
///
/// The loop learns the window from the time between the end of its work and the next event. Without
/// traffic, or if no window is worth its cost, the loop sleeps at once.
///
/// A spinning loop yields its CPU on every empty poll. When another thread needs the CPU, the loop
/// does not spin for a while, at most 0.13 s. (It detects this need by a jump of the clock between
/// two polls, during which its thread waited for a CPU.) If two loops of a process share one CPU,
/// only one of them spins. A cgroup's CPU quota (v1 or v2) lowers [`max_cpu`](Self::max_cpu) so
/// that spinning does not cause throttling.
///
/// **If a CPU keeper runs on the machine** (`wakeful keeper`) and lets this process hold CPUs, the
/// loop does not spin. It sleeps, and the keeper keeps its CPU from halting for as long as the spin
/// would have lasted, or for a kernel tick (4 ms) if that is longer. This is about as fast, and
/// costs no CPU time. While there is traffic, the loop looks for the keeper every 10 s, at the path
/// in the environment variable `WAKEFUL_KEEPER`. Without the variable the path is
/// `/run/wakeful/keeper.sock`; an empty variable means no keeper. With
/// [`never_hold`](Self::never_hold) the loop spins even if there is a keeper.
///
/// | setting | default | range |
/// |---|---|---|
/// | [`hit_rate`](Self::hit_rate) | 0.999 | 0.05 to 0.9999 |
/// | [`max_window`](Self::max_window) | 25 times the duration of a wake | 0 to 16.7 ms |
/// | [`max_cpu`](Self::max_cpu) | 1 | 0 to 1 |
///
/// A number out of range becomes the nearest number in the range. NaN becomes the lowest number.
///
/// A loop whose thread has a real-time scheduling policy (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE)
/// does not spin, because `sched_yield` then does not let an ordinary thread run. The policy may
/// change while the loop runs: a spinning loop checks it once a second.
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

    /// Returns the default settings.
    #[must_use]
    pub const fn new() -> Self {
        Self::DEFAULT
    }

    /// Sets the share of events that should arrive during a spin, 0.05 to 0.9999 (default 0.999).
    /// The loop chooses the shortest window that reaches this share. With events at random times,
    /// 0.5 costs half a CPU and improves latency up to the median, 0.9 costs 0.9 of a CPU and
    /// improves it up to the 90th percentile, and so on.
    #[must_use]
    pub const fn hit_rate(mut self, share: f64) -> Self {
        self.hit_rate = share;
        self
    }

    /// Sets the longest spin, up to 16.7 ms. With zero, the loop never spins. The default is 25
    /// times the duration of a wake from sleep: 0.2 to 2 ms, and 1 ms until that duration is known.
    /// The duration is measured once per process, on two extra threads, as soon as there is
    /// traffic. If fewer than two events in five arrive within the longest spin, the loop sleeps at
    /// once.
    #[must_use]
    pub const fn max_window(mut self, window: Duration) -> Self {
        self.max_window = Some(window);
        self
    }

    /// Sets the share of a CPU that this loop may spend on spinning, 0 to 1 (default 1). In any
    /// second the loop exceeds this share by at most a fiftieth of the share.
    #[must_use]
    pub const fn max_cpu(mut self, share: f64) -> Self {
        self.max_cpu = share;
        self
    }

    /// Makes the loop spin even if a CPU keeper would hold its CPU. By default the loop then does
    /// not spin.
    #[must_use]
    pub const fn never_hold(mut self) -> Self {
        self.never_holds = true;
        self
    }

    /// May the loop spin at all? Not with a share of 0 or NaN, nor with a window of 0.
    pub(crate) fn may_spin(&self) -> bool {
        self.max_cpu > 0.0 && self.max_window != Some(Duration::ZERO)
    }
}

impl Default for Adaptive {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The settings of [`IdlePolicy::Hold`]: the loop sleeps at once, and keeps CPUs from halting while
/// events arrive.
///
/// **What it costs.** `top` and cgroups show no extra CPU time, because the CPUs are idle. But idle
/// CPUs that poll use power, and slow down their hyper-thread siblings. A hypervisor sees them as
/// busy. If the machine has CPU credits, they use the credits up. `/dev/cpu_dma_latency` holds all
/// CPUs of the machine at once. So by default it is used only on machines with at most four CPUs,
/// and only if the process may use at least half of them. [`whole_machine`](Self::whole_machine)
/// changes that.
///
/// **Before the first hold** the process measures, once and as soon as there is traffic, whether a
/// hold makes a wake shorter on this machine. If not, or if the process may not use the device, the
/// loop parks as with [`IdlePolicy::Park`]. The log then says once what would permit a hold.
/// `wakeful awake --probe` says the same.
///
/// **How it ends.** A hold ends when [`silence`](Self::silence) has passed without an event, or
/// sooner if held time has a [`hold_cost`](Self::hold_cost). This is so even if another library's
/// loop drives this one, and no longer calls it. A hold also ends when the loop or its process
/// ends, for whatever reason. It does not end while a handler blocks the loop. A process that is
/// stopped (SIGSTOP) during traffic keeps its hold until it continues. A forked child holds
/// nothing.
///
/// No CPU is held on battery, nor for 10 s after the hypervisor took a tenth of the CPUs' time.
/// [`LoopMetrics::hold`](crate::LoopMetrics::hold) shows whether CPUs are held, and if not, why.
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
    /// In millionths of a spun microsecond, so that settings can be compared.
    cost: u32,
}

/// A held microsecond costs as much as a spun one, in millionths.
const AS_A_SPIN: u32 = 1_000_000;

impl Hold {
    const DEFAULT: Self = Self {
        silence: Duration::from_millis(50),
        tolerated: Duration::ZERO,
        whole_machine: false,
        cost: 0,
    };

    /// Returns the default settings.
    #[must_use]
    pub const fn new() -> Self {
        Self::DEFAULT
    }

    /// Sets the time without an event after which the CPUs may halt again: 1 ms to 1 s (default 50
    /// ms). A time out of this range becomes the nearest time in it. Timers are not events. With
    /// the default and an event every 40 ms, the loop holds CPUs all the time.
    #[must_use]
    pub const fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// Sets what a held microsecond costs, as a share of what a spun microsecond costs: 0 to 1, in
    /// steps of a millionth (default 0: free). A number outside this range becomes the nearest
    /// number in it, and NaN becomes the default.
    ///
    /// At 0 every hold lasts for a whole [`silence`](Self::silence). Above 0 the loop learns how
    /// long the gaps between events are, and holds only if that is worth the cost. An event that
    /// arrives during a hold justifies a hold up to a certain length, the *worth* of the event: 50
    /// times the duration of a wake, divided by the cost. So with events at random times the loop
    /// holds if the mean gap is shorter than the worth. A hold in which no event arrives ends after
    /// the worth (or after a kernel tick, 4 ms, if that is longer), and never lasts longer than the
    /// silence. Within these limits the loop chooses the shortest hold in which 999 of 1,000 events
    /// arrive. If there is none, it chooses the hold that gains the most. At 1 a loop holds where
    /// [`Adaptive`] would spin.
    ///
    /// | cost | holds from this event rate | for up to | if a wake takes |
    /// |---|---|---|---|
    /// | 0.01 | 10 random events a second | 50 ms (the silence) | 20 µs |
    /// | 0.1 | 100 | 10 ms | 20 µs |
    /// | 1 | 1,000 | 4 ms | 20 µs |
    /// | 0.1 | 50 | 20 ms | 40 µs |
    ///
    /// The duration of a wake is measured once per process, on two extra threads that live for
    /// about 20 ms, as soon as there is traffic. The result is limited to 8 to 80 µs. Until it is
    /// measured, no CPU is held. The loop does not know the cost of power, of a slower hyper-thread
    /// sibling, or of a hypervisor's bill: `docs/idle.md` says how to choose. With a cost above 0,
    /// each sleep reads the clock two more times.
    #[must_use]
    pub const fn hold_cost(mut self, share: f64) -> Self {
        // NaN and negative numbers become 0.
        let millionths = (share * AS_A_SPIN as f64 + 0.5) as u32;
        self.cost = if millionths > AS_A_SPIN { AS_A_SPIN } else { millionths };
        self
    }

    /// See [`hold_cost`](Self::hold_cost). `None`: held time costs nothing.
    pub(crate) fn cost(self) -> Option<f64> {
        (self.cost > 0).then(|| f64::from(self.cost) / f64::from(AS_A_SPIN))
    }

    /// Sets how long a held CPU may take to leave its idle state, in whole microseconds (default 0:
    /// it polls), up to about half an hour. On bare metal a larger number allows shallow idle
    /// states, which use less power.
    #[must_use]
    pub const fn tolerated(mut self, latency: Duration) -> Self {
        self.tolerated = latency;
        self
    }

    /// Holds all CPUs even on a machine that is large, or that this process shares with others. By
    /// default the loop does not.
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

/// The error of parsing an [`IdlePolicy`]: no policy has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an idle policy: expected adaptive, hold, park, spin, busy-poll or keep-warm")]
pub struct UnknownIdlePolicy(String);

/// Parses the name of a policy: `adaptive`, `park`, `spin`, `busy-poll`, `keep-warm` or `hold`. The
/// policy gets its default settings.
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
