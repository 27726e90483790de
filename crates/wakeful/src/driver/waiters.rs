//! The tasks that wait for one direction of a descriptor.
//!
//! Most descriptors have one waiter at a time, the same task again and again. Its waker has a field
//! of its own. Several tasks may wait for an accept or a datagram. Each of them has an entry while
//! it waits, and only then. So a wake costs in proportion to the present waiters. The first two
//! entries need no allocation.
//!
//! A waker's clone, wake and drop may be user code. They may use this descriptor, or panic. None of
//! them runs while an entry is being changed, and a panic in a wake or a drop ends here.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::mem;
use std::task::Waker;

use crate::sys::panics;

/// The number of entries that need no allocation.
const FEW: usize = 2;

/// Names the entry of one waiter. After its wake it names nothing, never another waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

/// The waiters of one direction. See the [module](self). It is used on the loop's thread only.
#[derive(Default)]
pub(super) struct Waiters {
    /// The waker is kept after a wake, so that it costs nothing when the same task waits again.
    /// `waiting` says whether its task waits now.
    first: Cell<Option<Waker>>,
    waiting: Cell<bool>,
    /// Made when a first of several waiters comes, and then kept.
    shared: Cell<Option<Box<Shared>>>,
}

impl Waiters {
    /// Wakes all waiters. A task that waits again meanwhile is not woken twice, and one that stops
    /// waiting is not woken.
    pub(super) fn wake(&self) {
        if self.waiting.replace(false)
            && let Some(waker) = self.first.take()
        {
            panics::contain(|| waker.wake_by_ref());
            if let Some(newer) = self.first.replace(Some(waker)) {
                // A task has begun to wait during the wake, with a newer waker.
                self.replace_first(newer);
            }
        }
        let Some(end) = self.with_shared(|shared| shared.next) else { return };
        while let Some(waker) = self.with_shared(|shared| shared.take_before(end)).flatten() {
            panics::wake(waker);
        }
    }

    /// Makes `waker` the only waiter of `poll_io`. Returns whether it was there already: then no
    /// user code has run.
    #[inline]
    pub(super) fn set_first(&self, waker: &Waker) -> bool {
        let kept = self.first.take();
        let is_same = kept.as_ref().is_some_and(|kept| kept.will_wake(waker));
        self.first.set(kept);
        if !is_same {
            self.replace_first(waker.clone());
        }
        self.waiting.set(true);
        is_same
    }

    #[inline(never)]
    fn replace_first(&self, waker: Waker) {
        discard(self.first.replace(Some(waker)));
    }

    /// Adds one of several waiters. `place` names its entry.
    pub(super) fn wait(&self, place: &mut Option<Place>, waker: &Waker) {
        if let Some(place) = *place
            && self.with_shared(|shared| shared.will_wake(place, waker)) == Some(true)
        {
            return;
        }
        let waker = waker.clone();
        let mut shared = self.shared.take().unwrap_or_default();
        let old = place.and_then(|place| shared.remove(place));
        *place = Some(shared.insert(waker));
        self.shared.set(Some(shared));
        discard(old);
    }

    /// Removes the entry, if it has not been woken.
    pub(super) fn stop_waiting(&self, place: Place) {
        discard(self.with_shared(|shared| shared.remove(place)).flatten());
    }

    pub(super) fn any(&self) -> bool {
        self.waiting.get() || self.with_shared(|shared| !shared.is_empty()) == Some(true)
    }

    /// Drops all wakers without a wake.
    pub(super) fn forget(&self) {
        self.waiting.set(false);
        discard(self.first.take());
        if let Some(Shared { few, many, .. }) = self.with_shared(Shared::take) {
            few.into_iter().flatten().chain(many).for_each(|(_, waker)| discard(Some(waker)));
        }
    }

    /// Leaks all wakers, in a forked child. A wake or a drop may be code of another executor, and
    /// may take a lock that a thread of the parent held at the fork.
    pub(super) fn leak(&self) {
        self.waiting.set(false);
        mem::forget((self.first.take(), self.shared.take()));
    }

    /// `f` must not call user code, because the entries are out of their place while it runs.
    fn with_shared<R>(&self, f: impl FnOnce(&mut Shared) -> R) -> Option<R> {
        let mut shared = self.shared.take()?;
        let result = f(&mut shared);
        self.shared.set(Some(shared));
        Some(result)
    }
}

impl Drop for Waiters {
    /// The last owner may be a dispatch: a waker may drop the socket that the dispatch woke it for.
    fn drop(&mut self) {
        self.forget();
    }
}

/// Drops a waker. A panic in the drop is contained.
fn discard(waker: Option<Waker>) {
    if let Some(waker) = waker {
        panics::contain(|| drop(waker));
    }
}

/// The entries of several waiters. It moves wakers in and out and compares them, and calls no user
/// code.
#[derive(Default)]
struct Shared {
    next: u64,
    few: [Option<(Place, Waker)>; FEW],
    many: BTreeMap<Place, Waker>,
}

impl Shared {
    fn insert(&mut self, waker: Waker) -> Place {
        let place = Place(self.next);
        self.next += 1;
        match self.few.iter_mut().find(|entry| entry.is_none()) {
            Some(entry) => *entry = Some((place, waker)),
            None => _ = self.many.insert(place, waker),
        }
        place
    }

    fn remove(&mut self, place: Place) -> Option<Waker> {
        let is_it = |entry: &&mut Option<(Place, Waker)>| {
            entry.as_ref().is_some_and(|(present, _)| *present == place)
        };
        match self.few.iter_mut().find(is_it) {
            Some(entry) => entry.take().map(|(_, waker)| waker),
            None => self.many.remove(&place),
        }
    }

    fn will_wake(&self, place: Place, waker: &Waker) -> bool {
        let few = self.few.iter().flatten().find(|(present, _)| *present == place);
        let present = few.map(|(_, waker)| waker).or_else(|| self.many.get(&place));
        present.is_some_and(|present| present.will_wake(waker))
    }

    fn is_empty(&self) -> bool {
        self.many.is_empty() && self.few.iter().all(Option::is_none)
    }

    /// Takes one of the entries that were made before the place `end` was handed out.
    fn take_before(&mut self, end: u64) -> Option<Waker> {
        let is_before = |place: Place| place.0 < end;
        let few = self
            .few
            .iter_mut()
            .find(|entry| entry.as_ref().is_some_and(|(place, _)| is_before(*place)));
        if let Some((_, waker)) = few.and_then(Option::take) {
            return Some(waker);
        }
        let first = self.many.first_entry().filter(|entry| is_before(*entry.key()))?;
        Some(first.remove())
    }

    /// Takes all entries. Places that are handed out later are still new ones.
    fn take(&mut self) -> Self {
        let next = self.next;
        std::mem::replace(self, Self { next, ..Self::default() })
    }
}
