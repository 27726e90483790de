//! What is known of one direction of a descriptor: that it is ready, or that it is not.

use std::cell::Cell;

const NOT: u32 = 0;
/// An event has reported the direction ready, and no operation was tried since.
const TOLD: u32 = 1;
/// Nothing is known, so the first operation is tried before a wait.
const ASSUMED: u32 = 2;

const FIRST_SIGHT: u32 = 3;

thread_local! {
    /// The number of the last `Sight` of any descriptor of this thread's loops.
    static LAST_SIGHT: Cell<u32> = const { Cell::new(FIRST_SIGHT) };
}

/// Whether one direction is ready. See the [module](self).
///
/// Code may find a direction ready, do something else for a while, and then report that the
/// direction is not ready any more. An event may have come meanwhile. So each look gets a number, a
/// [`Sight`], which stands for the events that had come by then. The next event replaces the number
/// by one store, so that no event has to be counted.
pub(super) struct Readiness(Cell<u32>);

/// Stands for the moment when a direction was seen to be ready. Later events end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight(u32);

impl Sight {
    /// A number that no direction has. The numbers repeat after four thousand million looks.
    fn next() -> Self {
        let next = LAST_SIGHT.get().wrapping_add(1).max(FIRST_SIGHT);
        LAST_SIGHT.set(next);
        Self(next)
    }
}

impl Readiness {
    pub(super) fn new(assumed: bool) -> Self {
        Self(Cell::new(if assumed { ASSUMED } else { NOT }))
    }

    /// Is an operation worth a try?
    #[inline]
    pub(super) fn get(&self) -> bool {
        self.0.get() != NOT
    }

    /// Notes that an event has come.
    #[inline]
    pub(super) fn told(&self) {
        self.0.set(TOLD);
    }

    /// Notes that an event may have come that this loop has not seen, so that the next operation is
    /// tried.
    pub(super) fn assume(&self) {
        if !self.get() {
            self.0.set(ASSUMED);
        }
    }

    /// Notes that an operation has found the direction not ready.
    #[inline]
    pub(super) fn clear(&self) {
        self.0.set(NOT);
    }

    /// Returns a `Sight` if an event has reported the direction ready. An assumed readiness does
    /// not count, because the event that confirms it is still to come.
    pub(super) fn see(&self) -> Option<Sight> {
        match self.0.get() {
            NOT | ASSUMED => None,
            TOLD => {
                let sight = Sight::next();
                self.0.set(sight.0);
                Some(sight)
            }
            seen => Some(Sight(seen)),
        }
    }

    /// Notes that the direction is not ready any more, unless an event has come since `sight`.
    pub(super) fn clear_seen(&self, sight: Sight) {
        if self.0.get() == sight.0 {
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
        assert!(readiness.get(), "an event came after the look");

        let late = readiness.see().expect("told");
        readiness.clear_seen(early);
        assert!(readiness.get(), "a look before that event");
        readiness.clear_seen(late);
        assert!(!readiness.get());
    }

    #[test]
    fn a_sight_is_never_mistaken_for_a_later_one() {
        let readiness = Readiness::new(false);
        readiness.told();
        let first = readiness.see().expect("told");
        for _ in 0..100_000 {
            readiness.told();
            readiness.see().expect("told");
            readiness.clear_seen(first);
            assert!(readiness.get());
        }
        // After the numbers wrap around, none of them equals a state.
        LAST_SIGHT.set(u32::MAX);
        readiness.told();
        assert_eq!(readiness.see(), Some(Sight(FIRST_SIGHT)));
    }
}
