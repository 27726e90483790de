//! When connections go on to other loops.

use std::time::Duration;

/// When connections move: between two requests, so one that is idle stays. Those of a loop that is
/// not active any more always go, those of one that is only if it has too much to do. Out of range
/// becomes the nearest in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moves {
    /// An active loop gives connections away when it is above its group's target (0.6 for one that
    /// always [spreads](crate::LoopGroupBuilder::spread)) and its utilisation is so many times the
    /// mean of the active loops; 1.05 and more.
    pub ratio: f64,
    /// A connection stays for at least so long where it is.
    pub interval: Duration,
}

impl Default for Moves {
    fn default() -> Self {
        Self { ratio: 1.25, interval: Duration::from_secs(1) }
    }
}
