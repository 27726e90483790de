//! What a simulated loop does when it has nothing to do.

use wakeful::internals::{Governor, GovernorLimits, HoldGovernor};

/// What a loop does when it has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// The runtime's governor.
    Adaptive(GovernorLimits),
    /// Always the same window in nanoseconds, and then a sleep. 0 sleeps at once.
    Window(u64),
    /// Never sleeps.
    Spin,
    /// Sleeps, while the CPU is kept from halting.
    Hold(Hold),
}

/// How a loop that sleeps has its CPU held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hold {
    /// How long.
    pub length: HoldLength,
    /// The time from an arrival until the loop runs if its CPU was held, in nanoseconds. Also the
    /// CPU that falling asleep and waking takes then.
    pub wake: f64,
}

/// How long a CPU is held while nothing comes. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HoldLength {
    /// Always the same length.
    Silence(u64),
    /// As long as the runtime's governor says.
    Governor {
        /// The longest hold.
        silence: u64,
        /// The cost of held time, as a share of that of a spin.
        cost: f64,
        /// The longest spin that would be worthwhile.
        max_window: u64,
    },
}

/// How long a wake takes if the CPU was held, in nanoseconds. `docs/idle.md` names the machine.
pub const HELD_WAKE: f64 = 3_000.0;

/// The runtime's default silence, in nanoseconds.
pub const SILENCE: u64 = 50_000_000;

/// The fixed lengths that the governor of holds competes with, in nanoseconds.
pub const SILENCES: [u64; 3] = [4_000_000, 10_000_000, 20_000_000];

/// The fixed windows that the governor competes with, in nanoseconds.
pub const WINDOWS: [u64; 4] = [0, 50_000, 200_000, 1_000_000];

impl Policy {
    /// Returns its name in tables.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Adaptive(_) => "governor".to_owned(),
            Self::Window(0) => "park".to_owned(),
            Self::Window(ns) => format!("{} µs", ns / 1000),
            Self::Spin => "spin".to_owned(),
            Self::Hold(Hold { length: HoldLength::Silence(ns), .. }) => {
                format!("hold {} ms", ns / 1_000_000)
            }
            Self::Hold(Hold { length: HoldLength::Governor { cost, .. }, .. }) => {
                format!("hold at {cost}")
            }
        }
    }
}

/// A policy that is being followed. It has the questions and answers of [`Governor`].
#[derive(Debug)]
pub(crate) enum Decider {
    Adaptive(Box<Governor>),
    Window(u64),
    Hold(HoldDecider),
}

/// Says how long a CPU is held.
#[derive(Debug)]
pub(crate) struct HoldDecider {
    governor: Box<HoldGovernor>,
    /// How long a wake takes then.
    pub(crate) wake: f64,
}

impl HoldDecider {
    fn new(hold: Hold) -> Self {
        let governor = match hold.length {
            // At no cost it always lasts for the whole silence.
            HoldLength::Silence(silence) => HoldGovernor::new(silence, 0.0),
            HoldLength::Governor { silence, cost, max_window } => {
                let mut governor = HoldGovernor::new(silence, cost);
                governor.set_max_window(max_window);
                governor
            }
        };
        Self { governor: Box::new(governor), wake: hold.wake }
    }

    pub(crate) fn limit(&self) -> f64 {
        self.governor.limit() as f64
    }

    pub(crate) fn event_after(&mut self, gap: f64) {
        self.governor.event_after(gap as u64);
    }
}

impl Decider {
    pub(crate) fn new(policy: Policy) -> Self {
        match policy {
            Policy::Adaptive(limits) => Self::Adaptive(Box::new(Governor::new(limits))),
            Policy::Window(ns) => Self::Window(ns),
            Policy::Spin => Self::Window(u64::MAX),
            Policy::Hold(hold) => Self::Hold(HoldDecider::new(hold)),
        }
    }

    /// Returns whether the kernel is asked once before anything else.
    pub(crate) fn expects_soon(&self) -> bool {
        match self {
            Self::Adaptive(governor) => governor.expects_soon(),
            Self::Window(ns) => *ns > 0,
            // It asks once, and sleeps if there is nothing.
            Self::Hold(_) => true,
        }
    }

    pub(crate) fn begin(&mut self, now: u64) -> u64 {
        match self {
            Self::Adaptive(governor) => governor.begin(now),
            Self::Window(ns) => *ns,
            Self::Hold(_) => 0,
        }
    }

    pub(crate) fn hit(&mut self, now: u64, spun: u64) {
        if let Self::Adaptive(governor) = self {
            governor.hit(now, spun);
        }
    }

    pub(crate) fn miss(&mut self, now: u64, spun: u64) {
        if let Self::Adaptive(governor) = self {
            governor.miss(now, spun);
        }
    }

    pub(crate) fn parked(&mut self, idle: u64) {
        if let Self::Adaptive(governor) = self {
            governor.parked(idle);
        }
    }
}
