//! When a loop rings the watchdog, and when that may sleep.
//!
//! Two words for each loop. Its *beat* is odd while the loop is awake, and another number in each
//! beat; it is even while the loop sleeps. Its *watch* says whether somebody watches, or has been
//! rung and is about to.
//!
//! A sleep that is said twice, because a panic ended the first, is one sleep. A wake that is said
//! twice looks like a sleep until the next one: no loop is called stuck by that.
//!
//! # No wake is lost
//! A loop that wakes writes its beat and then reads the watch. The watchdog, to stop, writes the
//! watches and then reads the beats. All four are sequentially consistent, so one of them sees what
//! the other has written: the loop finds that nobody watches, and rings; or the watchdog finds the
//! loop awake, and goes on.
//!
//! # A ring that is under way counts for nothing
//! A loop rings, and *then* marks the watches of all loops of its page. So whoever finds the mark
//! knows that the ring is complete, also if the loop that made it is stopped or killed in between:
//! a second one rings as well. Of each loop at most one ring falls between two rests of the
//! watchdog.
//!
//! # No mark comes late
//! A mark that comes behind the end of the watch would keep others from ringing. But the watchdog
//! rests only if it has found each loop asleep, and a loop says so after its marks, with `Release`,
//! which the watchdog reads with `Acquire`: those marks are before the end. If what it found is
//! from before the loop woke, the loop has read the end, and its marks say that it has rung.

use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use crate::sys::sync::AtomicUsize;

/// The watch.
const RESTS: usize = 0;
const WATCHES: usize = 1;

/// Set in the beat of a loop that is awake.
const AWAKE: usize = 1;

/// From one beat to the next.
const NEXT: usize = 2;

/// The loop has slept, and begins a new beat. `call` is for [`ring_and_mark`], if nobody watches.
#[inline(always)]
pub(super) fn wake(beat: &AtomicUsize, watch: &AtomicUsize, call: impl FnOnce()) {
    begin(NEXT + AWAKE, beat, watch, call);
}

/// The loop is awake, and begins a new beat.
pub(super) fn go_on(beat: &AtomicUsize, watch: &AtomicUsize, call: impl FnOnce()) {
    begin(NEXT, beat, watch, call);
}

#[inline(always)]
fn begin(step: usize, beat: &AtomicUsize, watch: &AtomicUsize, call: impl FnOnce()) {
    // On x86 the read-modify-write is the fence that a store would need besides.
    beat.fetch_add(step, SeqCst);
    between();
    if watch.load(SeqCst) == RESTS {
        call();
    }
}

/// The loop sleeps next. That this is seen late costs the watchdog a look.
#[inline(always)]
pub(super) fn fall_asleep(beat: &AtomicUsize) {
    // It alone writes its beat.
    beat.store(beat.load(Relaxed) & !AWAKE, Release);
}

/// Nobody watches: rings, and says to all loops of the page that somebody has.
pub(super) fn ring_and_mark<'a>(
    ring: impl FnOnce(),
    watches: impl Iterator<Item = &'a AtomicUsize>,
) {
    ring();
    watches.for_each(|watch| watch.store(WATCHES, Release));
}

/// The beat that a loop is in. `None`: it sleeps.
pub(super) fn beat_of(beat: &AtomicUsize) -> Option<usize> {
    Some(beat.load(SeqCst)).filter(|beat| beat & AWAKE != 0)
}

/// The watchdog watches: nobody rings.
pub(super) fn watch_on(watch: &AtomicUsize) {
    watch.store(WATCHES, Relaxed);
}

/// The watchdog does not watch this loop any more, unless [`all_sleep`] says that it has to.
pub(super) fn watch_no_more(watch: &AtomicUsize) {
    watch.store(RESTS, SeqCst);
}

/// When no loop is watched any more: do all sleep still? Then the watchdog may, until it is rung.
pub(super) fn all_sleep<'a>(mut beats: impl Iterator<Item = &'a AtomicUsize>) -> bool {
    between();
    beats.all(|beat| beat_of(beat).is_none())
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
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn each_beat_has_a_number_of_its_own_also_where_the_numbers_begin_anew() {
        let watch = AtomicUsize::new(WATCHES);
        let call = || panic!("it is watched");
        for first in [0, 1, usize::MAX - 3, usize::MAX - 2, usize::MAX - 1, usize::MAX] {
            let beat = AtomicUsize::new(first);
            let mut beats = vec![];
            for _ in 0..3 {
                fall_asleep(&beat);
                fall_asleep(&beat);
                assert_eq!(beat_of(&beat), None);
                wake(&beat, &watch, call);
                beats.push(beat_of(&beat).unwrap());
                go_on(&beat, &watch, call);
                beats.push(beat_of(&beat).unwrap());
            }
            beats.sort_unstable();
            beats.dedup();
            assert_eq!(beats.len(), 6);
        }
    }

    #[test]
    fn a_wake_that_was_said_twice_is_made_good_by_the_next_sleep() {
        let (beat, watch) = (AtomicUsize::new(0), AtomicUsize::new(WATCHES));
        let wakes = || wake(&beat, &watch, || panic!("it is watched"));
        wakes();
        wakes();
        assert_eq!(beat_of(&beat), None);
        fall_asleep(&beat);
        wakes();
        assert!(beat_of(&beat).is_some());
    }

    #[test]
    fn who_is_killed_before_it_has_rung_keeps_no_other_from_ringing() {
        let [killed, other] = [const { AtomicUsize::new(0) }; 2];
        let watches = [const { AtomicUsize::new(RESTS) }; 2];
        let dies = || ring_and_mark(|| panic!("on purpose"), watches.iter());
        let is_killed = || wake(&killed, &watches[0], dies);
        assert!(catch_unwind(AssertUnwindSafe(is_killed)).is_err());
        let rings = Cell::new(0);
        let rung = || ring_and_mark(|| rings.set(rings.get() + 1), watches.iter());
        wake(&other, &watches[1], rung);
        go_on(&other, &watches[1], rung);
        go_on(&killed, &watches[0], rung);
        assert_eq!(rings.get(), 1);
    }
}
