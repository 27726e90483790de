//! When connections move to other loops.

use std::time::Duration;

/// The settings that decide when connections move to other loops.
///
/// A connection moves between two requests: right after a response, or when its client sends
/// something. An idle connection stays where it is until then. Connections of a loop that is no
/// longer active always move. Connections of an active loop move only if that loop has too much to
/// do. A value out of range becomes the nearest value in the range.
///
/// | setting | default | range |
/// |---|---|---|
/// | [`ratio`](Self::ratio) | 1.25 | 1.05 and more |
/// | [`interval`](Self::interval) | 1 s | any |
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use = "a setter returns the changed settings"]
pub struct Moves {
    pub(crate) ratio: f64,
    pub(crate) interval: Duration,
}

impl Moves {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets when an active loop gives connections away: when its utilisation exceeds both its
    /// group's target (0.6 for a group that always [spreads](crate::LoopGroupBuilder::spread)) and
    /// `ratio` times the mean of the active loops.
    pub fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = ratio;
        self
    }

    /// Sets the minimum time that a connection stays on a loop.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }
}

impl Default for Moves {
    fn default() -> Self {
        Self { ratio: 1.25, interval: Duration::from_secs(1) }
    }
}
