use std::sync::Arc;

use crate::balance::board::Board;

/// How busy a group's loops are, and how many of them are active: read from any thread, also while
/// the group ends.
///
/// *Threads*: `Clone`, `Send` and `Sync`.
#[derive(Debug, Clone)]
pub struct Loads(Arc<Board>);

impl Loads {
    pub(super) fn new(board: Arc<Board>) -> Self {
        Self(board)
    }

    /// How many loops there are.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.0.loops()
    }

    /// How many loops are active: the first so many. See
    /// [`concentrate`](super::LoopGroupBuilder::concentrate).
    #[must_use]
    pub fn active(&self) -> usize {
        self.0.active()
    }

    /// The share of its time that each loop spent on work lately (the mean of some tenths of a
    /// second), in the order of the loops' numbers; the rest went into sleep and spinning. Wall
    /// time: what neighbours take from a loop's thread counts as its work.
    pub fn utilisation(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        (0..self.0.loops()).map(|number| self.0.utilisation(number))
    }
}
