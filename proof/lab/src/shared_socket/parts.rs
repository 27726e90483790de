//! The parts of the experiment by name, and how much is measured.

use std::time::Duration;

use crate::lab::{Lab, Size};

pub(super) const TABLE: &str = "table";
pub(super) const CRASH: &str = "crash";
pub(super) const PICKERS: &str = "pickers";
pub(super) const TORTURE: &str = "torture";

/// All parts, in the order in which they are measured.
pub(super) const PARTS: [&str; 4] = [TABLE, CRASH, PICKERS, TORTURE];

/// How much is measured.
pub(super) struct Extent {
    pub(super) rounds: usize,
    /// The measured time of a block of the table.
    pub(super) block: Duration,
    /// How long a server is raced if it does not crash.
    pub(super) race: Duration,
    pub(super) torture: Duration,
}

impl Extent {
    pub(super) fn of(lab: &Lab<'_>) -> Self {
        let (rounds, block, race, torture) = match lab.size {
            Size::Quick => (2, 400, 3, 5),
            Size::Full => (5, 1000, 5, 20),
        };
        Self {
            rounds: lab.rounds.unwrap_or(rounds),
            block: lab.block.unwrap_or(Duration::from_millis(block)),
            race: Duration::from_secs(race),
            torture: Duration::from_secs(torture),
        }
    }
}
