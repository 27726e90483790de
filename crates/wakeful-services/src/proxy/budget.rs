//! A limit on all buffered bodies of a loop together.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::counts::LoopCounts;

/// One loop's.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    used: Cell<usize>,
    counts: Arc<LoopCounts>,
}

impl Budget {
    pub(super) fn new(limit: usize, counts: Arc<LoopCounts>) -> Rc<Self> {
        Rc::new(Self { limit, used: Cell::new(0), counts })
    }

    /// Is there room? (A piece may exceed it, because pieces are not cut.)
    pub(super) fn has_room(&self) -> bool {
        self.used.get() < self.limit
    }

    pub(super) fn share(self: &Rc<Self>) -> Share {
        Share { budget: self.clone(), taken: Cell::new(0) }
    }
}

/// The share of one body, until the body gives it back, or is dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Rc<Budget>,
    taken: Cell<usize>,
}

impl Share {
    pub(super) fn taken(&self) -> usize {
        self.taken.get()
    }

    pub(super) fn has_room(&self) -> bool {
        self.budget.has_room()
    }

    pub(super) fn take(&self, bytes: usize) {
        self.taken.set(self.taken.get() + bytes);
        self.budget.used.set(self.budget.used.get() + bytes);
        self.budget.counts.buffered.add(signed(bytes));
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.taken.set(self.taken.get() - bytes);
        self.budget.used.set(self.budget.used.get() - bytes);
        self.budget.counts.buffered.add(-signed(bytes));
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.taken());
    }
}

/// A number that does not fit is larger than any body.
fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
