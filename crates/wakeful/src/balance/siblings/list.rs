//! Who is in the kernel's list, who should be, and how that changes without a lock.
//!
//! A worker's state is one word. It alone changes it, but that the master frees the place of a dead
//! one. All accesses are sequentially consistent.
//!
//! # Somebody is in the list
//! A worker that goes out writes that, and then looks for another one that is in; if there is none,
//! it comes in again. Of two that go out at once, one sees that the other has, at least.
//!
//! One that steps back comes in again by itself, soon, unless it is no longer its turn.
//!
//! # Somebody comes in if nobody is
//! When the last one that is in leaves, all that are out are rung, and each that finds nobody in
//! comes in. (Whose turn it is may be stuck, and hear nothing.)
//!
//! # Who is to come in is rung
//! Whose turn it is follows from the states and from how many are active. Whoever changes one of
//! these first writes it, and then rings those whose turn it is and who are out. A worker that goes
//! out looks again behind that whether it is its turn. So it sees the change, or is seen to be out.

use std::sync::atomic::Ordering::SeqCst;

use crate::sys::sync::AtomicUsize;

/// What a worker is. Those that are `OUT` or `IN` accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State(pub(super) usize);

impl State {
    pub(super) const FREE: Self = Self(0);
    /// It starts.
    pub(super) const JOINED: Self = Self(1);
    /// It accepts, and is not in the kernel's list.
    pub(super) const OUT: Self = Self(2);
    pub(super) const IN: Self = Self(3);
    /// It accepts no more.
    pub(super) const LEAVES: Self = Self(4);
    /// It is stopped (SIGSTOP), and would accept.
    pub(super) const STOPPED: Self = Self(5);
    /// It has no room for another connection, and will accept when it has.
    pub(super) const FULL: Self = Self(6);

    fn accepts(self) -> bool {
        self == Self::OUT || self == Self::IN
    }
}

/// See the [module](self).
pub(super) trait List {
    fn places(&self) -> usize;

    fn state_word(&self, place: usize) -> &AtomicUsize;

    /// How many are to be in.
    fn active_word(&self) -> &AtomicUsize;

    fn ring(&self, place: usize);

    fn state(&self, place: usize) -> State {
        State(self.state_word(place).load(SeqCst))
    }

    fn set_state(&self, place: usize, state: State) {
        self.state_word(place).store(state.0, SeqCst);
        between();
    }

    /// Does nothing if it has another state by now. Returns whether it did.
    fn change_state(&self, place: usize, from: State, to: State) -> bool {
        let word = self.state_word(place);
        let changed = word.compare_exchange(from.0, to.0, SeqCst, SeqCst).is_ok();
        between();
        changed
    }

    /// Those that accept, in their order.
    fn accepting(&self) -> impl Iterator<Item = usize> {
        (0..self.places()).filter(|place| self.state(*place).accepts())
    }

    fn are_in(&self) -> impl Iterator<Item = usize> {
        (0..self.places()).filter(|place| self.state(*place) == State::IN)
    }

    fn active(&self) -> usize {
        self.active_word().load(SeqCst)
    }

    /// Is it the turn of this one?
    fn is_turn_of(&self, place: usize) -> bool {
        self.accepting().take(self.active()).any(|one| one == place)
    }

    /// Does nothing if somebody else has changed it meanwhile. Returns whether it did.
    fn change_active(&self, from: usize, to: usize) -> bool {
        let changed = self.active_word().compare_exchange(from, to, SeqCst, SeqCst).is_ok();
        if changed && to > from {
            between();
            self.ring_whose_turn_it_is();
        }
        changed
    }

    /// Says that this one goes out, unless it is its turn or nobody else is in. Returns whether it
    /// may.
    fn may_go_out(&self, place: usize) -> bool {
        if self.state(place) != State::IN {
            return false;
        }
        self.set_state(place, State::OUT);
        let may = self.are_in().next().is_some() && !self.is_turn_of(place);
        if !may {
            self.set_state(place, State::IN);
        }
        may
    }

    /// Says that this one goes out for a while although it is its turn, unless fewer than `stay` of
    /// those that are in take connections then. Returns whether it may.
    fn may_step_back(&self, place: usize, stay: usize, takes: impl Fn(usize) -> bool) -> bool {
        let enough =
            || self.are_in().filter(|it| *it != place && takes(*it)).count() >= stay.max(1);
        if !enough() || !self.change_state(place, State::IN, State::OUT) {
            return false;
        }
        // Others may have gone at once.
        let may = enough();
        if !may {
            self.change_state(place, State::OUT, State::IN);
        }
        may
    }

    /// This one accepts no more: it is dead, or says so itself.
    fn leaves(&self, place: usize, state: State) {
        self.set_state(place, state);
        self.others_take_over();
    }

    /// This one would accept, and does not now. Nothing happens to one that does not accept.
    fn pauses(&self, place: usize, state: State) {
        for accepts in [State::IN, State::OUT] {
            self.change_state(place, accepts, state);
        }
        self.others_take_over();
    }

    /// One has left. Those whose turn it is come in. If nobody is in, all do, since those may be
    /// stuck; and go out again, but for one. One that is in looks for what was the other's.
    fn others_take_over(&self) {
        match self.are_in().next() {
            Some(inside) => {
                self.ring_whose_turn_it_is();
                self.ring(inside);
            }
            None => {
                let out = |place: &usize| self.state(*place) == State::OUT;
                (0..self.places()).filter(out).for_each(|place| self.ring(place));
            }
        }
    }

    /// Should this one be in?
    fn is_wanted(&self, place: usize) -> bool {
        self.is_turn_of(place) || self.are_in().next().is_none()
    }

    /// Of those that are out.
    fn ring_whose_turn_it_is(&self) {
        let turns = self.accepting().take(self.active());
        turns.filter(|place| self.state(*place) == State::OUT).for_each(|place| self.ring(place));
    }
}

/// Loom takes `SeqCst` of an access for `AcqRel` (but that of a fence as it is meant).
#[inline(always)]
fn between() {
    #[cfg(wakeful_loom)]
    loom::sync::atomic::fence(SeqCst);
}

#[cfg(all(test, wakeful_loom))]
mod loom_tests;

#[cfg(all(test, not(wakeful_loom)))]
mod tests;
