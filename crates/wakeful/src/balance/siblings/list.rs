//! Which workers are in the kernel's list, which should be, and how that changes without a lock.
//!
//! A worker's state is one word. Only the worker itself changes it, by several threads, except that
//! the master frees the place of a dead worker, and pauses the place of a stopped one. All accesses
//! are sequentially consistent.
//!
//! # Somebody is in the list
//! A worker that goes out first writes that it is out, and then looks for another worker that is
//! in. If there is none, it comes in again. If two go out at the same time, at least one of them
//! sees that the other is out.
//!
//! A worker that steps back comes in again by itself after a short time, if it is still its turn.
//!
//! # If no worker is in the list, one comes in
//! When the last worker that is in leaves, the bells of all that are out ring, and each that finds
//! nobody in comes in. (It is not enough to ring those whose turn it is, because they may be stuck
//! and not hear the bell.)
//!
//! # Somebody looks for a connection that a worker was woken for and does not take
//! That worker rings one that is in. If nobody accepts (all are full), it first notes that a
//! connection is unclaimed, and then looks for one that is in again. A worker that comes in checks
//! afterwards whether one is unclaimed. So either it sees the note, or its bell rings. A worker
//! that is not in any more when it hears its bell passes the ring on.
//!
//! # The bell rings for a worker whose turn it is
//! The states and the number of active workers determine whose turn it is. A worker that changes
//! one of these first writes the change, and then rings those whose turn it is and who are out. A
//! worker that goes out checks afterwards whether it is its turn. So either it sees the change, or
//! the worker that makes the change sees that it is out.

use std::sync::atomic::Ordering::SeqCst;

use crate::sys::sync::AtomicUsize;

/// The state of a worker. A worker that is `OUT` or `IN` accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(pub(super) usize);

impl State {
    pub(super) const FREE: Self = Self(0);
    /// The worker starts, and does not accept yet.
    pub(super) const JOINED: Self = Self(1);
    /// `OUT`: it accepts, and is not in the kernel's list. `IN`: it accepts, and is in the list.
    pub(super) const OUT: Self = Self(2);
    pub(super) const IN: Self = Self(3);
    /// The worker accepts no more.
    pub(super) const LEAVES: Self = Self(4);
    /// The worker is stopped (SIGSTOP). Otherwise it would accept.
    pub(super) const STOPPED: Self = Self(5);
    /// The worker has no room for another connection. It accepts again when it has.
    pub(super) const FULL: Self = Self(6);

    pub(super) fn accepts(self) -> bool {
        self == Self::OUT || self == Self::IN
    }
}

/// The page's words, and the changes of state. See the [module](self).
pub(super) trait List {
    fn places(&self) -> usize;

    fn state_word(&self, place: usize) -> &AtomicUsize;

    /// How many workers should be in the list.
    fn active_word(&self) -> &AtomicUsize;

    /// Whether a connection may wait that no worker looks for.
    fn unclaimed_word(&self) -> &AtomicUsize;

    fn ring(&self, place: usize);

    fn state(&self, place: usize) -> State {
        State(self.state_word(place).load(SeqCst))
    }

    fn set_state(&self, place: usize, state: State) {
        self.state_word(place).store(state.0, SeqCst);
        between();
    }

    /// Changes the state of `place` from `from` to `to`, unless it is another state by now. Returns
    /// whether it did.
    fn change_state(&self, place: usize, from: State, to: State) -> bool {
        let word = self.state_word(place);
        let changed = word.compare_exchange(from.0, to.0, SeqCst, SeqCst).is_ok();
        between();
        changed
    }

    /// Notes that the worker at `place` begins to accept, and is in.
    fn begins(&self, place: usize) {
        self.set_state(place, State::IN);
        self.ring_if_unclaimed(place);
    }

    /// Notes that the worker at `place` is in again, if it is still out.
    fn comes_in(&self, place: usize) {
        if self.change_state(place, State::OUT, State::IN) {
            self.ring_if_unclaimed(place);
        }
    }

    /// The worker at `place` has come in, and may have to look for a connection.
    fn ring_if_unclaimed(&self, place: usize) {
        if self.unclaimed_word().load(SeqCst) != 0 {
            self.ring(place);
        }
    }

    /// Called by the worker at `place` when its bell has rung. Returns whether it must look for
    /// connections that the kernel woke other workers for. If not, another one does.
    fn is_to_look(&self, place: usize) -> bool {
        // Before it looks: what is noted from now on may come too late for this look. And before it
        // reads its state: if another loop of this worker runs full, that one's note must stay.
        self.unclaimed_word().store(0, SeqCst);
        between();
        let is_in = self.state(place) == State::IN;
        if !is_in {
            self.others_take_over(Some(place));
        }
        is_in
    }

    /// The places of the workers that accept, in order.
    fn accepting(&self) -> impl Iterator<Item = usize> {
        (0..self.places()).filter(|place| self.state(*place).accepts())
    }

    fn are_in(&self) -> impl Iterator<Item = usize> {
        (0..self.places()).filter(|place| self.state(*place) == State::IN)
    }

    fn active(&self) -> usize {
        self.active_word().load(SeqCst)
    }

    /// Is it the turn of the worker at `place`?
    fn is_turn_of(&self, place: usize) -> bool {
        self.accepting().take(self.active()).any(|one| one == place)
    }

    /// Changes the number of active workers, unless another worker has changed it meanwhile.
    /// Returns whether it did.
    fn change_active(&self, from: usize, to: usize) -> bool {
        let changed = self.active_word().compare_exchange(from, to, SeqCst, SeqCst).is_ok();
        if changed && to > from {
            between();
            self.ring_whose_turn_it_is();
        }
        changed
    }

    /// Notes that the worker at `place` goes out, unless it is its turn or nobody else is in.
    /// Returns whether it may.
    fn may_go_out(&self, place: usize) -> bool {
        // Another loop of this worker may run full meanwhile, or the worker may end.
        if !self.change_state(place, State::IN, State::OUT) {
            return false;
        }
        let may = self.are_in().next().is_some() && !self.is_turn_of(place);
        if !may {
            self.comes_in(place);
        }
        may
    }

    /// Notes that the worker at `place` goes out for a while although it is its turn, unless then
    /// fewer than `stay` of the workers that are in take connections. Returns whether it may.
    fn may_step_back(&self, place: usize, stay: usize, takes: impl Fn(usize) -> bool) -> bool {
        let enough =
            || self.are_in().filter(|it| *it != place && takes(*it)).count() >= stay.max(1);
        if !enough() || !self.change_state(place, State::IN, State::OUT) {
            return false;
        }
        // Others may have gone out at the same time.
        let may = enough();
        if !may {
            self.comes_in(place);
        }
        may
    }

    /// Notes that the worker at `place` accepts no more: it is dead, or calls this itself.
    fn leaves(&self, place: usize, state: State) {
        self.set_state(place, state);
        self.others_take_over(None);
    }

    /// Notes that the worker at `place` would accept, but does not for now. The state of a worker
    /// that does not accept anyway is left as it is.
    fn pauses(&self, place: usize, state: State) {
        // Another loop of this worker may change `OUT` to `IN`, or back, meanwhile.
        loop {
            let before = self.state(place);
            if !before.accepts() || self.change_state(place, before, state) {
                break;
            }
        }
        self.others_take_over(None);
    }

    /// Called after a worker has left, or was woken for a connection that it does not take: the
    /// one at `place`, if that is given. Those whose turn it is come in. If nobody is in, all come
    /// in, because those whose turn it is may be stuck; then all but one go out again. One worker
    /// that is in looks for connections that the kernel woke the other one for.
    fn others_take_over(&self, place: Option<usize>) {
        if let Some(inside) = self.are_in().next() {
            self.ring_whose_turn_it_is();
            return self.ring(inside);
        }
        self.unclaimed_word().store(1, SeqCst);
        between();
        // One may have come in before it could see that.
        // The one at `place` only if it is in by now: otherwise it would ring for itself again and
        // again.
        let rings = |one: &usize| Some(*one) != place || self.state(*one) == State::IN;
        self.accepting().filter(rings).for_each(|one| self.ring(one));
    }

    /// Should the worker at `place` be in?
    fn is_wanted(&self, place: usize) -> bool {
        self.is_turn_of(place) || self.are_in().next().is_none()
    }

    /// Rings the bells of the workers that are out and should be in.
    fn ring_whose_turn_it_is(&self) {
        let turns = self.accepting().take(self.active());
        turns.filter(|place| self.state(*place) == State::OUT).for_each(|place| self.ring(place));
    }
}

/// Loom treats a `SeqCst` access as `AcqRel`. Only a `SeqCst` fence has its full meaning there.
#[inline(always)]
fn between() {
    #[cfg(wakeful_loom)]
    loom::sync::atomic::fence(SeqCst);
}

#[cfg(all(test, wakeful_loom))]
mod loom_tests;

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
