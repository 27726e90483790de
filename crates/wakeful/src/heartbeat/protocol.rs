//! When a loop rings the watchdog, and when that may sleep.
//!
//! Two kinds of words: each loop has its *beat* ([`ASLEEP`], or a number), and each page has its
//! *watch*, which says whether somebody watches, or has been rung and is about to.
//!
//! # No wake is lost
//! A loop that wakes writes its beat and then reads the watch. The watchdog, to stop, writes the
//! watch and then reads the beats. A fence that is sequentially consistent stands between the two
//! on either side, so one of them sees what the other has written: the loop finds that nobody
//! watches, and rings; or the watchdog finds the loop awake, and goes on.
//!
//! # A ring that is under way counts for nothing
//! A loop rings, and *then* marks the watch. So whoever finds the mark knows that the ring is
//! complete, also if the loop that made it is stopped or killed in between: a second one rings as
//! well. Of each loop at most one ring falls between two rests of the watchdog.
//!
//! # No mark comes late
//! A mark that comes behind the end of the watch would keep others from ringing. But the watchdog
//! rests only if it has found each loop asleep, and a loop says so after its mark, with `Release`,
//! which the watchdog reads with `Acquire`: that mark is before the end. If what it found is from
//! before the loop woke, the loop has read the end, and its mark says that it has rung.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::sys::sync::{AtomicUsize, fence};

/// The beat of a loop that sleeps, or does not run.
pub(super) const ASLEEP: usize = 0;

/// The watch.
const RESTS: usize = 0;
const WATCHES: usize = 1;

/// The loop is awake, and in this beat from now on. `ring` rings the watchdog, if nobody watches.
#[inline]
pub(super) fn begin_beat(beat: &AtomicUsize, number: usize, watch: &AtomicUsize, ring: impl Fn()) {
    beat.store(number, Relaxed);
    fence(SeqCst);
    if watch.load(Relaxed) == RESTS {
        ring_and_mark(watch, ring);
    }
}

#[cold]
fn ring_and_mark(watch: &AtomicUsize, ring: impl Fn()) {
    ring();
    watch.store(WATCHES, Release);
}

/// The loop sleeps next. That this is seen late costs the watchdog a look.
#[inline]
pub(super) fn fall_asleep(beat: &AtomicUsize) {
    beat.store(ASLEEP, Release);
}

/// The beat that a loop is in.
pub(super) fn beat_of(beat: &AtomicUsize) -> Option<usize> {
    Some(beat.load(Acquire)).filter(|beat| *beat != ASLEEP)
}

/// The watchdog watches: nobody rings.
pub(super) fn watch_on(watch: &AtomicUsize) {
    watch.store(WATCHES, Relaxed);
}

/// The watchdog does not watch this page any more, unless [`all_sleep`] says that it has to.
pub(super) fn watch_no_more(watch: &AtomicUsize) {
    watch.store(RESTS, Relaxed);
}

/// When no page is watched any more: do all loops sleep still? Then the watchdog may, until it is
/// rung.
pub(super) fn all_sleep<'a>(mut beats: impl Iterator<Item = &'a AtomicUsize>) -> bool {
    fence(SeqCst);
    beats.all(|beat| beat_of(beat).is_none())
}

#[cfg(all(test, wakeful_loom))]
mod loom_tests;

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn who_is_killed_before_it_has_rung_keeps_no_other_from_ringing() {
        let [watch, killed, other] = [const { AtomicUsize::new(0) }; 3];
        let is_killed = || begin_beat(&killed, 1, &watch, || panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(is_killed)).is_err());
        let rings = Cell::new(0);
        let ring = || rings.set(rings.get() + 1);
        begin_beat(&other, 1, &watch, ring);
        begin_beat(&other, 2, &watch, ring);
        assert_eq!(rings.get(), 1);
    }
}
