//! A group, its load, and where its connections are placed.

use clap::ValueEnum;
use wakeful::group::Targets;
use wakeful::internals::GovernorLimits;

use super::placement::Moving;
use crate::policy::{Hold, Policy};

/// Where connections are, and what their loops do when they have no work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Placing {
    /// Place each connection on the active loop with the fewest, and move connections when the
    /// active loops change. Each loop has the governor.
    Concentrate,
    /// Place connections on each loop in turn, and never move them. Each loop has the governor.
    Spread,
    /// Place connections on each loop in turn. Every loop spins.
    Burn,
    /// Place connections on each loop in turn. Every loop sleeps.
    Park,
    /// Like `concentrate`, but each loop sleeps and has its CPU held.
    Hold,
    /// Like `spread`, but each loop sleeps and has its CPU held.
    HoldSpread,
}

impl Placing {
    /// Returns its name in tables.
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

    /// Returns whether few loops are active at little load.
    #[must_use]
    pub fn concentrates(self) -> bool {
        matches!(self, Self::Concentrate | Self::Hold)
    }

    /// Returns whether its loops hold.
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
    /// Requests per second, of all connections together.
    pub rate: f64,
    /// How long a request keeps its loop busy in addition to the costs, in nanoseconds.
    pub work: f64,
    /// How many connections there are. They are opened during the first second.
    pub connections: usize,
    /// How long a connection lasts on average until another one takes its place, in nanoseconds.
    /// `None`: for ever.
    pub life: Option<f64>,
    /// How many seconds are simulated: more than [`SETTLED`](super::SETTLED).
    pub seconds: u64,
    /// The seed that makes the load repeatable.
    pub seed: u64,
    /// What the active loops aim at.
    pub targets: Targets,
    /// When connections are moved.
    pub moving: Moving,
    /// How loops that hold do so.
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
