//! Work without a task: closures at fixed places of a turn.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use slab::Slab;

use crate::metrics::Counters;
use crate::panics;

/// The callbacks of one loop.
pub(super) struct Callbacks {
    pub(super) this_turn: Once,
    pub(super) next_turn: Once,
    pub(super) before_park: Hooks,
    pub(super) after_turn: Hooks,
}

impl Callbacks {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self {
            this_turn: Once::new(counters.clone()),
            next_turn: Once::new(counters.clone()),
            before_park: Hooks::new(counters.clone()),
            after_turn: Hooks::new(counters),
        }
    }

    pub(super) fn run_this_turn(&self, callback: impl FnOnce() + 'static) {
        self.this_turn.push(Box::new(callback));
    }

    pub(super) fn run_next_turn(&self, callback: impl FnOnce() + 'static) {
        self.next_turn.push(Box::new(callback));
    }

    pub(super) fn before_park(self: &Rc<Self>, callback: impl FnMut() + 'static) -> Hook {
        let place = self.before_park.insert(callback);
        Hook { callbacks: Rc::downgrade(self), list: |all| &all.before_park, place }
    }

    pub(super) fn after_turn(self: &Rc<Self>, callback: impl FnMut() + 'static) -> Hook {
        let place = self.after_turn.insert(callback);
        Hook { callbacks: Rc::downgrade(self), list: |all| &all.after_turn, place }
    }

    /// The loop's end: drops all without running it, each once, and refuses what the drops queue.
    pub(super) fn end(&self) {
        self.this_turn.end();
        self.next_turn.end();
        self.before_park.end();
        self.after_turn.end();
    }
}

/// Callbacks that run once, in the order in which they were queued.
pub(super) struct Once {
    queue: RefCell<VecDeque<Box<dyn FnOnce()>>>,
    ended: Cell<bool>,
    counters: Arc<Counters>,
}

impl Once {
    fn new(counters: Arc<Counters>) -> Self {
        Self { queue: RefCell::default(), ended: Cell::new(false), counters }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    fn push(&self, callback: Box<dyn FnOnce()>) {
        if self.ended.get() {
            panics::contain(|| drop(callback));
        } else {
            self.queue.borrow_mut().push_back(callback);
        }
    }

    /// `false`: there is none.
    #[inline]
    pub(super) fn run_first(&self) -> bool {
        let first = self.queue.borrow_mut().pop_front();
        let Some(callback) = first else { return false };
        if !panics::contain(callback) {
            self.counters.panics.add(1);
        }
        true
    }

    fn end(&self) {
        self.ended.set(true);
        for callback in self.queue.take() {
            panics::contain(|| drop(callback));
        }
    }
}

type Repeated = Rc<RefCell<dyn FnMut()>>;

/// Callbacks that run again and again, until their [`Hook`] is dropped.
pub(super) struct Hooks {
    hooks: RefCell<Slab<Repeated>>,
    ended: Cell<bool>,
    counters: Arc<Counters>,
}

impl Hooks {
    fn new(counters: Arc<Counters>) -> Self {
        Self { hooks: RefCell::default(), ended: Cell::new(false), counters }
    }

    fn insert(&self, callback: impl FnMut() + 'static) -> usize {
        if self.ended.get() {
            return usize::MAX;
        }
        self.hooks.borrow_mut().insert(Rc::new(RefCell::new(callback)))
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.hooks.borrow().is_empty()
    }

    /// Runs those that were there when it began, each once. Returns how many.
    pub(super) fn run(&self) -> u64 {
        let places: Vec<_> = self.hooks.borrow().iter().map(|(place, _)| place).collect();
        let mut ran = 0;
        for place in places {
            // Another hook may have dropped this one.
            let hook = self.hooks.borrow().get(place).cloned();
            let Some(hook) = hook else { continue };
            ran += 1;
            let contained = panics::contain(|| {
                // Refused only to a hook that drives its own loop's hooks, which cannot be.
                if let Ok(mut hook) = hook.try_borrow_mut() {
                    hook();
                }
            });
            if !contained {
                self.counters.panics.add(1);
            }
        }
        ran
    }

    fn remove(&self, place: usize) {
        let hook = self.hooks.borrow_mut().try_remove(place);
        drop(hook);
    }

    fn end(&self) {
        self.ended.set(true);
        for (_, hook) in self.hooks.take() {
            panics::contain(|| drop(hook));
        }
    }
}

/// Keeps a [`before_park`](crate::before_park) or [`after_turn`](crate::after_turn) callback in place; dropping it
/// removes the callback, also from within that callback.
///
/// *Threads*: Neither `Send` nor `Sync`: it stays on its loop's thread.
#[must_use = "dropping the hook removes its callback"]
pub struct Hook {
    callbacks: Weak<Callbacks>,
    list: fn(&Callbacks) -> &Hooks,
    place: usize,
}

impl Drop for Hook {
    fn drop(&mut self) {
        if let Some(callbacks) = self.callbacks.upgrade() {
            (self.list)(&callbacks).remove(self.place);
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").finish_non_exhaustive()
    }
}
