//! The longest poll so far, and the place of its task. These are two words that belong together.
//! The loop writes them and any thread reads them, without a lock that could make the loop wait.
//!
//! A sequence lock in safe code. The writer makes the number odd, writes both words, and makes it
//! even again. A reader uses what it has read only if the number was even before and is the same
//! afterwards. Each word is written with `Release` and read with `Acquire`, so a reader that reads
//! a new word also sees the odd number that was written before it.

use std::hint;
use std::panic::Location;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crossbeam_utils::atomic::AtomicCell;

use super::task_names::name_of;
use crate::sys::clock::Clock;

/// The longest poll since the loop was built, in
/// [`LoopMetrics::longest_poll`](crate::LoopMetrics::longest_poll).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LongestPoll {
    /// How long it took.
    pub duration: Duration,
    /// The place where the task was spawned or the closure was sent. For `block_on`'s future, it is
    /// the call of `block_on`.
    pub spawned_at: &'static Location<'static>,
    /// The task's name, if it was spawned by a [`task::Builder`](crate::task::Builder) with one.
    pub name: Option<&'static str>,
}

#[derive(Debug, Default)]
pub(crate) struct LongestSoFar {
    number: AtomicU64,
    ticks: AtomicU64,
    spawned_at: AtomicCell<Option<&'static Location<'static>>>,
}

const _: () = assert!(AtomicCell::<Option<&'static Location<'static>>>::is_lock_free());

/// How often a reader tries. A write takes only a few nanoseconds.
const TRIES: u32 = 1_000;

impl LongestSoFar {
    /// Records a poll. Must be called on the loop's thread only.
    pub(super) fn set(&self, ticks: u64, spawned_at: &'static Location<'static>) {
        let number = self.number.load(Relaxed);
        self.number.store(number.wrapping_add(1), Relaxed);
        self.ticks.store(ticks, Release);
        self.spawned_at.store(Some(spawned_at));
        self.number.store(number.wrapping_add(2), Release);
    }

    pub(super) fn ticks(&self) -> u64 {
        self.ticks.load(Relaxed)
    }

    /// `None`: there is no poll yet; or the loop's thread has lost its CPU in the middle of a
    /// write, for which the reader does not wait.
    pub(super) fn read(&self) -> Option<LongestPoll> {
        for _ in 0..TRIES {
            let before = self.number.load(Acquire);
            let ticks = self.ticks.load(Acquire);
            let spawned_at = self.spawned_at.load();
            if before.is_multiple_of(2) && self.number.load(Relaxed) == before {
                let duration = Clock::get().duration(ticks);
                let name = spawned_at.and_then(name_of);
                return spawned_at.map(|spawned_at| LongestPoll { duration, spawned_at, name });
            }
            hint::spin_loop();
        }
        None
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_reader_never_meets_half_of_a_record() {
        let places = [Location::caller(), here(), here()];
        let longest = LongestSoFar::default();
        assert_eq!(longest.read(), None);
        let clock = Clock::get();
        let done = AtomicBool::new(false);
        let of = |number: u64| places[(number % 3) as usize];
        std::thread::scope(|scope| {
            let read = scope.spawn(|| {
                let mut last = Duration::ZERO;
                while !done.load(Acquire) {
                    let Some(found) = longest.read() else { continue };
                    assert!(found.duration >= last);
                    last = found.duration;
                    // The values are hundreds of ticks, because a nanosecond may have several
                    // ticks.
                    let number = (clock.ticks(last) + 50) / 100;
                    assert_eq!(found.spawned_at, of(number), "{found:?}");
                }
            });
            (1..if cfg!(miri) { 100 } else { 100_000 }).for_each(|n| longest.set(n * 100, of(n)));
            done.store(true, Release);
            read.join().unwrap();
        });
    }

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }
}
