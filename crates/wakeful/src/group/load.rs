use std::sync::Arc;

use super::Board;

/// How busy a group's loops are, for whoever watches and does not have the group.
///
/// *Threads*: `Send` and `Sync`.
#[derive(Debug, Clone)]
pub struct GroupLoad(Arc<Board>);

impl GroupLoad {
    pub(super) fn new(board: Arc<Board>) -> Self {
        Self(board)
    }

    /// How many loops are active: the first so many. See [`Activity`](super::Activity).
    #[must_use]
    pub fn active(&self) -> usize {
        self.0.active()
    }

    /// The share of its time that each loop spends on work, lately: the others' time goes into sleep and spinning. Wall time: what neighbours take from a
    /// loop counts as its work.
    #[must_use]
    pub fn utilisation(&self) -> Vec<f64> {
        (0..self.0.loops()).map(|number| self.0.utilisation(number)).collect()
    }
}
