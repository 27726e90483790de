//! Which members of a crowd are awake, asleep, or stuck in a turn, and which members stand in for
//! stuck ones. The members are the loops of a group, or the workers of a master.
//!
//! Each member writes when it last reported, or that it sleeps. An active member that is awake
//! postpones the alarm ([`Alarm`]). The member that the alarm wakes checks which members are stuck,
//! and activates one more member if all active ones are.

use super::alarm::Alarm;

/// See the [module](self).
pub(super) trait Crowd {
    fn alarm(&self) -> &Alarm;

    /// When a member said something last, in ticks; 0: it sleeps.
    fn heard(&self, member: usize) -> u64;

    fn set_heard(&self, member: usize, at: u64);

    fn is_active(&self, member: usize) -> bool;

    fn active_members(&self) -> impl Iterator<Item = usize>;

    /// No active member comes back from its turn: one more is to be active, if there is one.
    fn activate_one_more(&self);

    /// Some active member does not come back from its turn.
    fn tell_of_stuck(&self);

    /// `me` is awake, and takes turns.
    fn hear(&self, me: usize) {
        let now = self.alarm().now();
        self.set_heard(me, now);
        if self.alarm().has_rung(now) {
            self.stand_in(me, now);
        } else if self.is_active(me) {
            self.alarm().push(now);
        }
    }

    /// `me` has slept.
    fn is_back(&self, me: usize) {
        let now = self.alarm().now();
        self.set_heard(me, now);
        if self.alarm().has_rung(now) {
            self.stand_in(me, now);
        } else if self.is_active(me) && !self.alarm().is_set(now) {
            self.alarm().push(now);
        }
    }

    /// `me` sleeps next. `often`: it has done so before since it said something last.
    fn leave(&self, me: usize, often: bool) {
        self.set_heard(me, 0);
        let now = self.alarm().now();
        if self.alarm().has_rung(now) {
            // While this one was awake, and spun, say: nobody who sleeps has been woken.
            self.stand_in(me, now);
        }
        if !often && self.is_active(me) {
            self.stop_if_none_is_awake();
        }
    }

    /// Stops the alarm, unless an active member is awake, or stuck: what sleeps is woken by what
    /// comes.
    fn stop_if_none_is_awake(&self) {
        let any_is_awake = || self.active_members().any(|member| self.heard(member) != 0);
        if any_is_awake() {
            return;
        }
        self.alarm().stop();
        // One who came back meanwhile may have seen it set.
        if any_is_awake() {
            self.alarm().push(self.alarm().now());
        }
    }

    /// Does this member not come back from a turn?
    fn is_stuck(&self, member: usize, now: u64) -> bool {
        let heard = self.heard(member);
        heard != 0 && self.alarm().is_over(heard, now)
    }

    /// The alarm has rung, and `me` looks who is to blame.
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
        if self.active_members().all(|member| self.is_stuck(member, now)) {
            self.activate_one_more();
        }
        self.tell_of_stuck();
    }
}
