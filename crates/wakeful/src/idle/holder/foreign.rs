//! A hold of a loop that another library's loop drives by turns. The next turn continues the hold.
//! If no turn comes, or no turn has an event, the hold ends after a silence.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::leash::{Leash, Release};

/// The part of a hold that lasts between two turns. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Foreign {
    pub(super) leash: Option<Leash>,
    /// Whether a turn is over while the hold lasts.
    pub(super) is_between: bool,
    /// The loop's counter when the loop last did something, and the moment until which it therefore
    /// holds.
    done: u64,
    pub(super) deadline: Option<Instant>,
}

impl Foreign {
    /// Called at the beginning of a turn. Returns whether the hold of the turn before still lasts,
    /// or nothing was held.
    #[inline]
    pub(super) fn enter_turn(&mut self) -> bool {
        let is_between = std::mem::take(&mut self.is_between);
        let lasts = !is_between || self.leash.as_ref().is_none_or(Leash::enter_turn);
        if !lasts {
            self.deadline = None;
        }
        lasts
    }

    /// Called at the end of a turn in which `held` is held. Returns whether the hold lasts beyond
    /// the turn.
    pub(super) fn leave_turn(
        &mut self,
        done: u64,
        silence: Duration,
        held: Option<&Arc<impl Release + 'static>>,
    ) -> bool {
        let now = Instant::now();
        let deadline = match self.deadline {
            Some(deadline) if done == self.done => deadline,
            _ => now + silence,
        };
        (self.done, self.deadline) = (done, Some(deadline));
        if now >= deadline {
            return false;
        }
        // If there is no thread to end the hold later, or nothing that it could end, the hold ends
        // here.
        let Some(leash) = held.and_then(|held| self.tied_to(held)) else { return false };
        leash.leave_turn(deadline);
        self.is_between = true;
        true
    }

    /// The loop has ended the hold itself.
    pub(super) fn ended(&mut self) {
        self.deadline = None;
        if let Some(leash) = &self.leash {
            leash.ended();
        }
    }

    /// May another hold begin? Not while the thread is ending the previous one.
    pub(super) fn is_through(&self) -> bool {
        self.leash.as_ref().is_none_or(Leash::is_through)
    }

    fn tied_to(&mut self, held: &Arc<impl Release + 'static>) -> Option<&Leash> {
        if !self.leash.as_ref().is_some_and(|leash| leash.is_of(held)) {
            self.leash = Leash::new(held).ok();
        }
        self.leash.as_ref()
    }
}
