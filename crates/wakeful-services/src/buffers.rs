//! A limit on the memory of the buffers of all connections of a service together.
//!
//! A buffer is counted while it is larger than [`FREE`]. So a small command touches no shared
//! counter, and a large one does so each time its buffer doubles.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A piece of this size is no mapping of its own, so a look at many takes little time.
pub(crate) const PIECE: usize = 64 << 10;
/// How many pieces are left for what the program allocates itself.
const LEFT: usize = 8;

/// Is some more memory there than what buffers have taken (`RLIMIT_AS`)? If not, they had better
/// not grow: the next small allocation might abort the process.
pub(crate) fn is_some_left() -> bool {
    let mut left: [Vec<u8>; LEFT] = Default::default();
    let is_left = left.iter_mut().all(|piece| piece.try_reserve_exact(PIECE).is_ok());
    // Otherwise the compiler may leave out what is never used.
    black_box(&left);
    is_left
}

/// The bytes of a buffer that are not counted.
pub(crate) const FREE: usize = 16 * 1024;

/// The bytes that buffers take, and the most that they may take.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    used: AtomicUsize,
    refused: AtomicU64,
}

impl Budget {
    /// `usize::MAX` means no limit.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), refused: AtomicU64::new(0) })
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// How often there was no room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, more).is_ok()
    }
}

/// What one buffer takes from a [`Budget`]. Its drop gives it back.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    bytes: usize,
    /// Set while `bytes` is above 0.
    budget: Option<Arc<Budget>>,
}

impl Charge {
    /// Does the buffer take nothing?
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Counts a buffer of `size` bytes. `false`: the budget has no room for it, and nothing has
    /// changed.
    #[inline]
    #[must_use]
    pub(crate) fn cover(&mut self, budget: &Arc<Budget>, size: usize) -> bool {
        self.try_cover(budget, size) || Self::refuse(budget)
    }

    /// The same for a buffer that may as well stay small: `false` counts as no refusal.
    #[inline]
    #[must_use]
    pub(crate) fn try_cover(&mut self, budget: &Arc<Budget>, size: usize) -> bool {
        size <= FREE || size <= self.bytes || self.grow(budget, size)
    }

    #[cold]
    fn refuse(budget: &Budget) -> bool {
        budget.refused.fetch_add(1, Relaxed);
        false
    }

    #[cold]
    fn grow(&mut self, budget: &Arc<Budget>, size: usize) -> bool {
        let fits = budget.take(size - self.bytes);
        if fits {
            self.bytes = size;
            self.budget.get_or_insert_with(|| budget.clone());
        }
        fits
    }

    /// Notes that the buffer is no larger than `size` any more.
    #[inline]
    pub(crate) fn shrink_to(&mut self, size: usize) {
        if self.bytes > size {
            self.give_back(if size <= FREE { 0 } else { size });
        }
    }

    #[cold]
    fn give_back(&mut self, kept: usize) {
        if let Some(budget) = &self.budget {
            budget.used.fetch_sub(self.bytes - kept, Relaxed);
        }
        self.bytes = kept;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_are_free_and_large_ones_are_counted_until_they_shrink_or_end() {
        let budget = Budget::new(10 * FREE);
        let (mut one, mut other) = (Charge::default(), Charge::default());
        assert!(one.cover(&budget, FREE));
        assert_eq!(budget.used(), 0);
        assert!(one.cover(&budget, 6 * FREE) && one.cover(&budget, 2 * FREE));
        assert_eq!(budget.used(), 6 * FREE, "it is as large as it was");
        assert!(!other.cover(&budget, 5 * FREE));
        assert_eq!(budget.used(), 6 * FREE, "what was refused is not counted");
        assert_eq!(budget.refused(), 1);
        assert!(!other.try_cover(&budget, 5 * FREE));
        assert_eq!((budget.used(), budget.refused()), (6 * FREE, 1), "nothing was refused");
        assert!(other.cover(&budget, 4 * FREE));
        one.shrink_to(3 * FREE);
        assert_eq!(budget.used(), 7 * FREE);
        drop(other);
        one.shrink_to(FREE);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn without_a_limit_everything_fits() {
        let budget = Budget::new(usize::MAX);
        let mut charge = Charge::default();
        assert!(charge.cover(&budget, usize::MAX / 2));
        assert!(!Charge::default().cover(&budget, usize::MAX), "but no overflow");
    }
}
