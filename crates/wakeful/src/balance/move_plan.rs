//! Which loops give open connections away, how many, and to which loops.

use std::sync::atomic::Ordering;

use super::balancer::Balancer;

/// The time between two plans, in nanoseconds. The effect of one plan should be visible before the
/// next one.
const PLAN_EVERY: u64 = 200_000_000;

impl Balancer {
    /// Should loop `number` give one of its connections to another loop?
    #[inline]
    pub(crate) fn gives(&self, number: usize) -> bool {
        self.shares[number].gives.load(Ordering::Relaxed) > 0
    }

    /// The loop that should get a connection from loop `from`: an active loop below the mean that
    /// is not stuck in its turn. `None`: `from` should keep its connections.
    pub(crate) fn taker(&self, from: usize) -> Option<usize> {
        let fewer = |gives: usize| gives.checked_sub(1);
        let gives = &self.shares[from].gives;
        gives.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).ok()?;
        let active = self.board.active();
        let mean = self.mean_utilisation(active);
        let is_stuck = self.board.stuck();
        let takes = |number: usize| {
            number != from && self.board.utilisation(number) <= mean && !is_stuck(number)
        };
        let first = self.next_taker.fetch_add(1, Ordering::Relaxed);
        (0..active).map(|step| (first.wrapping_add(step)) % active).find(|number| takes(*number))
    }

    fn mean_utilisation(&self, active: usize) -> f64 {
        (0..active).map(|number| self.board.utilisation(number)).sum::<f64>() / active as f64
    }

    /// Computes how many connections each loop should give away until the next plan. A loop that is
    /// not active gives all. A loop that has much more to do than the others gives half of what it
    /// has above the mean.
    pub(super) fn plan_moves(&self) {
        let (Some(moves), now) = (self.moves, self.now()) else { return };
        let next = self.next_plan.load(Ordering::Relaxed);
        let plan = |from, to| {
            self.next_plan.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        // If several threads find that it is time, only one plans.
        if now < next || !plan(next, now + PLAN_EVERY) {
            return;
        }
        let active = self.board.active();
        let mean = self.mean_utilisation(active);
        let ratio = moves.ratio.max(1.05);
        // If one loop among many is new, it is far below the mean, but none of the others is far
        // above it.
        let one_is_empty = (0..active).any(|number| self.board.utilisation(number) < mean / ratio);
        for (number, share) in self.shares.iter().enumerate() {
            let (open, has) = (self.open(number), self.board.utilisation(number));
            let gives = if number >= active {
                open
            } else if open > 1
                && has > self.board.target()
                && (has > mean * ratio || (one_is_empty && has > mean))
            {
                (open as f64 * (has - mean) / has / 2.0).ceil() as usize
            } else {
                0
            };
            share.gives.store(gives, Ordering::Relaxed);
        }
    }
}
