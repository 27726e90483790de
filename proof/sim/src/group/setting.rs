//! A group, its load, and where its connections are put.

use clap::ValueEnum;
use wakeful::group::Targets;
use wakeful::internals::GovernorLimits;

use super::placement::Moving;
use crate::policy::{Hold, Policy};

/// Where connections are, and what their loops do without work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Placing {
    /// On the active loop that has the fewest; moved when the active ones change. Each loop has the
    /// governor.
    Concentrate,
    /// On each loop in turn, for good. Each loop has the governor.
    Spread,
    /// On each loop in turn, and every loop spins.
    Burn,
    /// On each loop in turn, and every loop sleeps.
    Park,
    /// As `concentrate`, but each loop sleeps, and has its CPU held.
    Hold,
    /// As `spread`, but each loop sleeps, and has its CPU held.
    HoldSpread,
}

impl Placing {
    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Concentrate => "concentrate",
            Self::Spread => "spread",
            Self::Burn => "burn",
            Self::Park => "park",
            Self::Hold => "hold",
            Self::HoldSpread => "hold-spread",
        }
    }

    /// Are few loops active at little load?
    #[must_use]
    pub fn concentrates(self) -> bool {
        matches!(self, Self::Concentrate | Self::Hold)
    }

    /// Do its loops hold?
    #[must_use]
    pub fn holds(self) -> bool {
        matches!(self, Self::Hold | Self::HoldSpread)
    }
}

/// A group and its load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Where connections are.
    pub placing: Placing,
    /// How many loops there are.
    pub loops: usize,
    /// Requests a second, of all connections together.
    pub rate: f64,
    /// What a request takes its loop beyond what the costs say, in nanoseconds.
    pub work: f64,
    /// How many connections there are. They are opened during the first second.
    pub connections: usize,
    /// How long a connection lasts on average, in nanoseconds, until another one takes its place.
    /// For ever, if there is none.
    pub life: Option<f64>,
    /// How many seconds are simulated; [`SETTLED`](super::SETTLED) and more.
    pub seconds: u64,
    /// What makes the load repeatable.
    pub seed: u64,
    /// What the active loops aim at.
    pub targets: Targets,
    /// When connections are moved.
    pub moving: Moving,
    /// How loops that hold do it.
    pub hold: Hold,
}

impl Setting {
    pub(super) fn idle(&self, limits: GovernorLimits) -> Policy {
        match self.placing {
            Placing::Concentrate | Placing::Spread => Policy::Adaptive(limits),
            Placing::Burn => Policy::Spin,
            Placing::Park => Policy::Window(0),
            Placing::Hold | Placing::HoldSpread => Policy::Hold(self.hold),
        }
    }
}
