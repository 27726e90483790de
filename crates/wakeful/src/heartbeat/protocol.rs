//! When a loop rings the watchdog, and when the watchdog may sleep.
//!
//! Each loop has two words. Its *beat* is odd while the loop is awake, and differs in each beat. It
//! is even while the loop sleeps. Its *watch* says whether the watchdog watches the loop, or has
//! been rung and is about to watch.
//!
//! If a loop reports a sleep twice, because a panic ended the first one, that is one sleep. If it
//! reports a wake twice, it seems to sleep until the next wake, and so it is not called stuck.
//!
//! # No wake is lost
//! A loop that wakes writes its beat and then reads the watch. A watchdog that stops writes the
//! watches and then reads the beats. All four accesses are sequentially consistent, so one side
//! sees what the other has written: either the loop finds that nobody watches, and rings; or the
//! watchdog finds the loop awake, and continues.
//!
//! # A ring that is under way counts for nothing
//! A loop rings, and *then* marks the watches of all loops of its page. So a loop that finds the
//! mark knows that the ring is complete. If a loop is stopped or killed between its ring and its
//! mark, the next loop rings as well. Between two rests of the watchdog, each loop rings at most
//! once.
//!
//! # No mark comes late
//! A mark that came after the end of the watch would keep others from ringing. But the watchdog
//! rests only if it has found each loop asleep. A loop reports its sleep after its marks, with
//! `Release`, and the watchdog reads the report with `Acquire`, so these marks are before the end
//! of the watch. If the report is from before the loop woke, the loop has read the end of the
//! watch, and its marks say that it has rung.

use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use crate::sys::sync::AtomicUsize;

/// The values of a watch.
const RESTS: usize = 0;
const WATCHES: usize = 1;

/// The bit that is set in the beat of an awake loop.
const AWAKE: usize = 1;

/// The step from one beat to the next.
const NEXT: usize = 2;

/// The loop wakes, and begins a new beat. If nobody watches, `call` is called, which must
/// [`ring_and_mark`].
#[inline(always)]
pub(super) fn wake(beat: &AtomicUsize, watch: &AtomicUsize, call: impl FnOnce()) {
    begin(NEXT + AWAKE, beat, watch, call);
}

/// The loop stays awake, and begins a new beat.
pub(super) fn go_on(beat: &AtomicUsize, watch: &AtomicUsize, call: impl FnOnce()) {
    begin(NEXT, beat, watch, call);
}

#[inline(always)]
fn begin(step: usize, beat: &AtomicUsize, watch: &AtomicUsize, call: impl FnOnce()) {
    // On x86 the read-modify-write is also the fence. A store would need one in addition.
    beat.fetch_add(step, SeqCst);
    between();
    if watch.load(SeqCst) == RESTS {
        call();
    }
}

/// The loop is about to sleep. If the watchdog sees this late, it looks once more.
#[inline(always)]
pub(super) fn fall_asleep(beat: &AtomicUsize) {
    // The loop alone writes its beat.
    beat.store(beat.load(Relaxed) & !AWAKE, Release);
}

/// Rings, because nobody watches, and marks the watches of all loops of the page as rung.
pub(super) fn ring_and_mark<'a>(
    ring: impl FnOnce(),
    watches: impl Iterator<Item = &'a AtomicUsize>,
) {
    ring();
    watches.for_each(|watch| watch.store(WATCHES, Release));
}

/// The beat that a loop is in. `None`: the loop sleeps.
pub(super) fn beat_of(beat: &AtomicUsize) -> Option<usize> {
    Some(beat.load(SeqCst)).filter(|beat| beat & AWAKE != 0)
}

/// Notes that the watchdog watches this loop, so that the loop does not ring.
pub(super) fn watch_on(watch: &AtomicUsize) {
    watch.store(WATCHES, Relaxed);
}

/// Notes that the watchdog stops watching this loop. It must watch again if [`all_sleep`] is
/// `false`.
pub(super) fn watch_no_more(watch: &AtomicUsize) {
    watch.store(RESTS, SeqCst);
}

/// Do all loops still sleep? Called when no loop is watched any more. If `true`, the watchdog may
/// sleep until it is rung.
pub(super) fn all_sleep<'a>(mut beats: impl Iterator<Item = &'a AtomicUsize>) -> bool {
    between();
    beats.all(|beat| beat_of(beat).is_none())
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
