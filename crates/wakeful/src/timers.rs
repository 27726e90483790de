//! Deadlines: a 4-ary heap that knows where each timer is, so that cancelling one removes it.
//!
//! This is only a data structure, without a clock. [`TimerTime`] is its measure of time. Insert and
//! cancel are O(log n), the next deadline O(1), and memory is in proportion to the timers that
//! exist. Timers of one deadline expire in the order of their insertion. A node has four children,
//! because then siblings share a cache line or two, and the tree is half as deep as a binary one.
//!
//! No waker is cloned, woken or dropped here, because each of these may run user code, which may
//! use the timers. Wakers are only moved in and out, and compared.

use std::task::Waker;
use std::time::Duration;

use slab::Slab;

const CHILDREN: usize = 4;

/// A moment on the clock of a loop's timers, which a test may pause: nanoseconds since a moment
/// that the owner chose. Code that measures the machine (idle policy, stopwatch, metrics) uses the
/// real clock and plain numbers, so that the compiler keeps the two apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct TimerTime(u64);

impl TimerTime {
    /// The last moment, 584 years after the first one. Timers for later moments are due then.
    #[cfg(feature = "test-util")]
    pub(crate) const LAST: Self = Self(u64::MAX);

    pub(crate) const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// The time since the clock's zero.
    pub(crate) const fn since_zero(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Nanoseconds since `earlier`, or 0 if that is later.
    #[inline]
    pub(crate) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    #[inline]
    pub(crate) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Identifies one timer. After the timer has expired, or was moved or cancelled, the key identifies
/// no timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimerKey {
    slot: usize,
    sequence: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    deadline: TimerTime,
    sequence: u64,
    slot: usize,
}

impl Entry {
    /// Orders by deadline, then by insertion. The comparison of sequence numbers also works after
    /// they wrap around.
    fn is_before(&self, other: &Self) -> bool {
        self.deadline < other.deadline
            || self.deadline == other.deadline
                && (self.sequence.wrapping_sub(other.sequence) as i64) < 0
    }
}

#[derive(Debug)]
struct Timer {
    position: usize,
    waker: Waker,
}

/// The timers of one loop.
#[derive(Debug)]
pub(crate) struct Timers {
    heap: Vec<Entry>,
    timers: Slab<Timer>,
    next_sequence: u64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        // The number starts near its end, so that it wraps around in every run.
        Self { heap: Vec::new(), timers: Slab::new(), next_sequence: u64::MAX - 8 }
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// When the earliest timer is due.
    pub(crate) fn next_deadline(&self) -> Option<TimerTime> {
        self.heap.first().map(|entry| entry.deadline)
    }

    /// Adds a timer that wakes `waker` at `deadline`.
    pub(crate) fn insert(&mut self, deadline: TimerTime, waker: Waker) -> TimerKey {
        let sequence = self.next_sequence();
        let position = self.heap.len();
        let slot = self.timers.insert(Timer { position, waker });
        self.heap.push(Entry { deadline, sequence, slot });
        self.sift_up(position);
        TimerKey { slot, sequence }
    }

    /// Has the timer not fired yet?
    #[cfg(feature = "test-util")]
    pub(crate) fn contains(&self, key: TimerKey) -> bool {
        self.position(key).is_some()
    }

    /// Does `waker` wake the same task as the timer's waker? `None`: the timer no longer exists.
    pub(crate) fn will_wake(&self, key: TimerKey, waker: &Waker) -> Option<bool> {
        let position = self.position(key)?;
        Some(self.timers[self.heap[position].slot].waker.will_wake(waker))
    }

    /// Gives the timer another waker, and returns the old one. The caller must drop it where user
    /// code may run.
    ///
    /// # Errors
    /// The timer no longer exists. The new waker is returned.
    pub(crate) fn set_waker(&mut self, key: TimerKey, waker: Waker) -> Result<Waker, Waker> {
        let Some(position) = self.position(key) else {
            return Err(waker);
        };
        Ok(std::mem::replace(&mut self.timers[self.heap[position].slot].waker, waker))
    }

    /// Moves the timer to another deadline. It keeps its waker, and counts as inserted now. `None`:
    /// the timer no longer exists.
    pub(crate) fn set_deadline(&mut self, key: TimerKey, deadline: TimerTime) -> Option<TimerKey> {
        let position = self.position(key)?;
        let sequence = self.next_sequence();
        let entry = &mut self.heap[position];
        (entry.deadline, entry.sequence) = (deadline, sequence);
        self.sift(position);
        Some(TimerKey { slot: key.slot, sequence })
    }

    /// Removes the timer, if it still exists, and returns its waker. The caller must drop it where
    /// user code may run.
    pub(crate) fn cancel(&mut self, key: TimerKey) -> Option<Waker> {
        self.position(key).map(|position| self.remove(position))
    }

    /// Removes the earliest timer if it is due at `now`.
    pub(crate) fn pop_due(&mut self, now: TimerTime) -> Option<Waker> {
        self.next_deadline().filter(|deadline| *deadline <= now).map(|_| self.remove(0))
    }

    /// Removes all timers, and returns their wakers. The caller must drop them where user code may
    /// run.
    pub(crate) fn clear(&mut self) -> Vec<Waker> {
        self.heap.clear();
        self.timers.drain().map(|timer| timer.waker).collect()
    }

    fn position(&self, key: TimerKey) -> Option<usize> {
        let position = self.timers.get(key.slot)?.position;
        (self.heap[position].sequence == key.sequence).then_some(position)
    }

    fn remove(&mut self, position: usize) -> Waker {
        let entry = self.heap.swap_remove(position);
        if position < self.heap.len() {
            // The last entry has taken the place of the removed one.
            self.sift(position);
        }
        self.timers.remove(entry.slot).waker
    }

    fn next_sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.wrapping_add(1);
        sequence
    }

    /// Restores the order for an entry that may belong above or below its place.
    fn sift(&mut self, position: usize) {
        let moved_up = self.sift_up(position) != position;
        if !moved_up {
            self.sift_down(position);
        }
    }

    fn sift_up(&mut self, mut position: usize) -> usize {
        let entry = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / CHILDREN;
            if !entry.is_before(&self.heap[parent]) {
                break;
            }
            self.place(self.heap[parent], position);
            position = parent;
        }
        self.place(entry, position);
        position
    }

    fn sift_down(&mut self, mut position: usize) {
        let entry = self.heap[position];
        loop {
            let first = position * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.heap.len());
            let least = children.reduce(|least, child| {
                if self.heap[child].is_before(&self.heap[least]) { child } else { least }
            });
            match least.filter(|least| self.heap[*least].is_before(&entry)) {
                Some(least) => {
                    self.place(self.heap[least], position);
                    position = least;
                }
                None => break,
            }
        }
        self.place(entry, position);
    }

    fn place(&mut self, entry: Entry, position: usize) {
        self.heap[position] = entry;
        self.timers[entry.slot].position = position;
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Stamp(AtomicU64);

    impl Wake for Stamp {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn at(nanoseconds: u64) -> TimerTime {
        TimerTime::from_nanos(nanoseconds)
    }

    fn waker() -> (Arc<Stamp>, Waker) {
        let stamp = Arc::new(Stamp::default());
        (stamp.clone(), stamp.into())
    }

    #[test]
    fn equal_deadlines_expire_in_order_across_the_counter_s_wrap() {
        let mut timers = Timers::new();
        let stamps: Vec<_> = (0..20)
            .map(|_| {
                let (stamp, waker) = waker();
                timers.insert(at(7), waker);
                stamp
            })
            .collect();
        assert!(timers.pop_due(at(6)).is_none());
        for expected in &stamps {
            timers.pop_due(at(7)).expect("due").wake();
            assert_eq!(expected.0.load(Ordering::Relaxed), 1);
        }
        assert_eq!(timers.len(), 0);
    }

    #[test]
    fn a_spent_key_names_nothing() {
        let mut timers = Timers::new();
        let (_, noop) = waker();
        let first = timers.insert(at(1), noop.clone());
        assert!(timers.cancel(first).is_some());
        let second = timers.insert(at(2), noop.clone());
        assert_eq!(first.slot, second.slot, "the slot is used again");
        assert!(timers.cancel(first).is_none());
        assert!(timers.set_waker(first, noop.clone()).is_err());
        assert!(timers.set_deadline(first, at(1)).is_none());
        assert_eq!(timers.next_deadline(), Some(at(2)));
        assert!(timers.pop_due(at(2)).is_some());
        assert!(timers.cancel(second).is_none());
    }

    /// Compares the heap with a sorted map, with a fixed pseudo-random schedule of inserts, moves,
    /// cancels and expiries.
    #[test]
    fn agrees_with_a_sorted_map() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let mut timers = Timers::new();
        let mut model = BTreeMap::new();
        let mut inserted = 0_u64;
        let mut now = 0;
        for _ in 0..if cfg!(miri) { 300 } else { 50_000 } {
            match next(10) {
                0..=4 => {
                    let deadline = now + next(1_000);
                    let (stamp, waker) = waker();
                    let key = timers.insert(at(deadline), waker);
                    model.insert((deadline, inserted), (key, stamp));
                    inserted += 1;
                }
                kind @ 5..=7 if !model.is_empty() => {
                    let nth = next(model.len() as u64) as usize;
                    let id = *model.keys().nth(nth).expect("in range");
                    let (key, stamp) = model.remove(&id).expect("present");
                    if kind == 5 {
                        let deadline = now + next(1_000);
                        let moved = timers.set_deadline(key, at(deadline)).expect("it is there");
                        assert!(timers.cancel(key).is_none(), "the old key is spent");
                        model.insert((deadline, inserted), (moved, stamp));
                        inserted += 1;
                    } else {
                        assert!(timers.cancel(key).is_some());
                    }
                }
                _ => {
                    now += next(100);
                    while let Some(waker) = timers.pop_due(at(now)) {
                        let (id, (_, stamp)) = model.pop_first().expect("the model has it too");
                        assert!(id.0 <= now);
                        waker.wake();
                        assert_eq!(stamp.0.load(Ordering::Relaxed), 1, "the earliest one");
                    }
                }
            }
            assert_eq!(timers.len(), model.len());
            assert_eq!(timers.next_deadline(), model.keys().next().map(|id| at(id.0)));
        }
        assert_eq!(timers.clear().len(), model.len());
        assert_eq!(timers.len(), 0);
    }
}
