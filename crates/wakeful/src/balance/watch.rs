//! Which members of a crowd are awake, asleep, or stuck in a turn, and which members stand in for
//! stuck ones. The members are the loops of a group, or the workers of a master.
//!
//! Each member writes when it last reported, or that it sleeps. An active member that is awake
//! postpones the alarm ([`Alarm`]). The member that the alarm wakes checks which members are stuck,
//! and activates one more member if all active ones are.

use super::alarm::Alarm;

/// The members, and what they know of each other. See the [module](self).
pub(super) trait Crowd {
    fn alarm(&self) -> &Alarm;

    /// When a member reported last, in ticks; 0: it sleeps.
    fn heard(&self, member: usize) -> u64;

    fn set_heard(&self, member: usize, at: u64);

    fn is_active(&self, member: usize) -> bool;

    fn active_members(&self) -> impl Iterator<Item = usize>;

    /// All active members are stuck in their turns, so one more becomes active, if there is one.
    /// Returns how many are active then.
    fn activate_one_more(&self) -> Option<usize>;

    /// Logs that one more member is active.
    fn log_one_more(&self, active: usize);

    /// Handles that some active member is stuck in its turn.
    fn tell_of_stuck(&self);

    /// Reports that `me` is awake, and runs its turns.
    fn hear(&self, me: usize) {
        let now = self.alarm().now();
        self.set_heard(me, now);
        if self.alarm().has_rung(now) {
            self.stand_in(me, now);
        } else if self.is_active(me) {
            self.alarm().push(now);
        }
    }

    /// Reports that `me` has woken up.
    fn is_back(&self, me: usize) {
        let now = self.alarm().now();
        self.set_heard(me, now);
        if self.alarm().has_rung(now) {
            self.stand_in(me, now);
        } else if self.is_active(me) && !self.alarm().is_set(now) {
            self.alarm().push(now);
        }
    }

    /// Reports that `me` is about to sleep. `often`: it has slept before since its last report.
    fn leave(&self, me: usize, often: bool) {
        self.set_heard(me, 0);
        let now = self.alarm().now();
        if self.alarm().has_rung(now) {
            // The alarm rang while this member was awake, for example because it spun. So the alarm
            // has woken no sleeping member, and this one must check.
            self.stand_in(me, now);
        }
        if !often && self.is_active(me) {
            self.stop_if_none_is_awake();
        }
    }

    /// Stops the alarm, unless an active member is awake or stuck. If all active members sleep, a
    /// new connection wakes one of them.
    fn stop_if_none_is_awake(&self) {
        let any_is_awake = || self.active_members().any(|member| self.heard(member) != 0);
        if any_is_awake() {
            return;
        }
        self.alarm().stop();
        // A member that woke up meanwhile may have seen that the alarm was set, and relied on it.
        if any_is_awake() {
            self.alarm().push(self.alarm().now());
        }
    }

    /// Is this member stuck in a turn?
    fn is_stuck(&self, member: usize, now: u64) -> bool {
        let heard = self.heard(member);
        heard != 0 && self.alarm().is_over(heard, now)
    }

    /// The alarm has rung. `me` checks which members are stuck.
    #[cold]
    fn stand_in(&self, me: usize, now: u64) {
        self.alarm().push(now);
        if !self.is_active(me) {
            self.stop_if_none_is_awake();
        }
        let mut active = self.active_members();
        let any_is_stuck = active.any(|member| self.is_stuck(member, now));
        if !any_is_stuck {
            return;
        }
        let all_are_stuck = self.active_members().all(|member| self.is_stuck(member, now));
        let more = if all_are_stuck { self.activate_one_more() } else { None };
        self.tell_of_stuck();
        // This comes last, because the subscriber is user code, which may block.
        if let Some(active) = more {
            self.log_one_more(active);
        }
    }
}
