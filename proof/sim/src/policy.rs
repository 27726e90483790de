//! What a simulated loop does when it has nothing to do.

use wakeful::internals::{Governor, GovernorLimits};

/// What a loop does when it has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// The runtime's governor.
    Adaptive(GovernorLimits),
    /// Always the same window in nanoseconds, and then sleep; 0 sleeps at once.
    Window(u64),
    /// Never sleep.
    Spin,
}

/// The fixed windows that the governor competes with, in nanoseconds.
pub const WINDOWS: [u64; 4] = [0, 50_000, 200_000, 1_000_000];

impl Policy {
    /// Its name in tables.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Adaptive(_) => "governor".to_owned(),
            Self::Window(0) => "park".to_owned(),
            Self::Window(ns) => format!("{} µs", ns / 1000),
            Self::Spin => "spin".to_owned(),
        }
    }
}

/// A policy at work. It is asked and told what [`Governor`] is.
#[derive(Debug)]
pub(crate) enum Decider {
    Adaptive(Box<Governor>),
    Window(u64),
}

impl Decider {
    pub(crate) fn new(policy: Policy) -> Self {
        match policy {
            Policy::Adaptive(limits) => Self::Adaptive(Box::new(Governor::new(limits))),
            Policy::Window(ns) => Self::Window(ns),
            Policy::Spin => Self::Window(u64::MAX),
        }
    }

    /// Is the kernel asked once before anything else?
    pub(crate) fn expects_soon(&self) -> bool {
        match self {
            Self::Adaptive(governor) => governor.expects_soon(),
            Self::Window(ns) => *ns > 0,
        }
    }

    pub(crate) fn begin(&mut self, now: u64) -> u64 {
        match self {
            Self::Adaptive(governor) => governor.begin(now),
            Self::Window(ns) => *ns,
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
