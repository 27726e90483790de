//! The functions that are called after each review of a board, which is `T` here.
//!
//! A watcher may log, and the subscriber is user code, which may block. So there is no lock, and no
//! thread is kept from calling the watchers by one that is blocked in them. The list only grows
//! until its board is gone: a group has one or two watchers.

use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::race::OnceBox;

use crate::sys::panics;

/// Called after each review, maybe by several threads at the same time. `false`: it need not be
/// called again.
pub(crate) type Watcher<T> = Box<dyn Fn(&T) -> bool + Send + Sync>;

/// A list of watchers, in the order in which they were added. See the [module](self).
pub(super) struct Watchers<T>(OnceBox<One<T>>);

struct One<T> {
    watcher: Watcher<T>,
    is_over: AtomicBool,
    next: Watchers<T>,
}

impl<T> Watchers<T> {
    pub(super) fn new() -> Self {
        Self(OnceBox::new())
    }

    pub(super) fn add(&self, watcher: Watcher<T>) {
        let mut one = Box::new(One { watcher, is_over: AtomicBool::new(false), next: Self::new() });
        let mut end = self;
        // If several threads add one at the same time, each finds a place further on.
        while let Err(refused) = end.0.set(one) {
            one = refused;
            if let Some(taken) = end.0.get() {
                end = &taken.next;
            }
        }
    }

    /// Calls each of them.
    pub(super) fn tell(&self, board: &T) {
        let mut has_panicked = false;
        let mut rest = self;
        while let Some(One { watcher, is_over, next }) = rest.0.get() {
            if !is_over.load(Ordering::Relaxed) {
                let mut stays = true;
                has_panicked |= !panics::contain(|| stays = watcher(board));
                if !stays {
                    is_over.store(true, Ordering::Relaxed);
                }
            }
            rest = next;
        }
        if has_panicked {
            let what = "reviewing the loops of a group";
            panics::log!(error, what, "a function of the group panicked, and is called again");
        }
    }
}
