//! What is known of one direction of a descriptor: that it is ready, or that it is not.

use std::cell::Cell;

const NOT: u8 = 0;
/// An event has said so, and nobody has looked since.
const TOLD: u8 = 1;
/// Nobody has said so. The first operation is tried before anything is waited for.
const ASSUMED: u8 = u8::MAX;

/// Each number in between is that of a [`Sight`].
const FIRST_SIGHT: u8 = TOLD + 1;
const LAST_SIGHT: u8 = ASSUMED - 1;

/// See the [module](self).
///
/// Who finds a direction ready may look away for a while before saying that it is not ready any
/// more, and an event may come meanwhile. So whoever looks gets a number, which says which events
/// had come by then. An event takes the number away: it is one store, and nobody counts events.
pub(super) struct Readiness {
    state: Cell<u8>,
    last_sight: Cell<u8>,
}

/// A direction was seen to be ready, before any event that is yet to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight(u8);

impl Readiness {
    pub(super) fn new(assumed: bool) -> Self {
        let state = if assumed { ASSUMED } else { NOT };
        Self { state: Cell::new(state), last_sight: Cell::new(LAST_SIGHT) }
    }

    /// Is an operation worth a try?
    #[inline]
    pub(super) fn get(&self) -> bool {
        self.state.get() != NOT
    }

    /// An event has come.
    #[inline]
    pub(super) fn told(&self) {
        self.state.set(TOLD);
    }

    /// An operation has found that it is not ready.
    #[inline]
    pub(super) fn clear(&self) {
        self.state.set(NOT);
    }

    /// Ready, as far as an event has said so. What is only assumed does not count: the event that
    /// confirms it is still to come.
    pub(super) fn see(&self) -> Option<Sight> {
        match self.state.get() {
            NOT | ASSUMED => None,
            TOLD => {
                let last = self.last_sight.get();
                let sight = if last == LAST_SIGHT { FIRST_SIGHT } else { last + 1 };
                self.last_sight.set(sight);
                self.state.set(sight);
                Some(Sight(sight))
            }
            seen => Some(Sight(seen)),
        }
    }

    /// It is not ready any more, unless an event has come since `sight`.
    pub(super) fn clear_seen(&self, sight: Sight) {
        if self.state.get() == sight.0 {
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_assumed_is_worth_a_try_and_is_not_seen() {
        let readiness = Readiness::new(true);
        assert!(readiness.get() && readiness.see().is_none());
        readiness.told();
        assert!(readiness.get() && readiness.see().is_some());
        readiness.clear();
        assert!(!readiness.get() && readiness.see().is_none());
    }

    #[test]
    fn an_event_behind_a_sight_is_not_cleared_with_it() {
        let readiness = Readiness::new(false);
        readiness.told();
        let early = readiness.see().expect("told");
        assert_eq!(readiness.see(), Some(early), "no event in between");
        readiness.told();
        readiness.clear_seen(early);
        assert!(readiness.get(), "an event came behind the sight");

        let late = readiness.see().expect("told");
        readiness.clear_seen(early);
        assert!(readiness.get(), "a sight of an earlier event");
        readiness.clear_seen(late);
        assert!(!readiness.get());
    }

    #[test]
    fn sights_differ_also_when_their_numbers_begin_again() {
        let readiness = Readiness::new(false);
        readiness.told();
        let mut before = readiness.see().expect("told");
        for _ in 0..1_000 {
            readiness.told();
            let sight = readiness.see().expect("told");
            assert_ne!(sight, before);
            readiness.clear_seen(before);
            assert!(readiness.get());
            before = sight;
        }
    }
}
