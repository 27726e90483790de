use std::sync::Arc;

use crate::balance::board::Board;

/// Shows how busy a group's loops are, and how many of them are active. It can be read from any
/// thread, even while the group ends.
///
/// # Threads
/// `Clone`, `Send` and `Sync`.
#[derive(Debug, Clone)]
pub struct Loads(Arc<Board>);

impl Loads {
    pub(super) fn new(board: Arc<Board>) -> Self {
        Self(board)
    }

    /// Returns the number of loops.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.0.loops()
    }

    /// Returns the number of active loops (those with the lowest numbers). See
    /// [`concentrate`](super::LoopGroupBuilder::concentrate).
    #[must_use]
    pub fn active(&self) -> usize {
        self.0.active()
    }

    /// Returns the share of recent time (some tenths of a second) that each loop spent on work, in
    /// the order of the loops' numbers. The rest was sleep and spinning. It is wall time: if other
    /// threads take the CPU from a working loop, that time counts as its work.
    pub fn utilisation(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        (0..self.0.loops()).map(|number| self.0.utilisation(number))
    }
}
