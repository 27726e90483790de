//! Work without a task: closures at fixed places of a turn.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::{Rc, Weak};

use slab::Slab;

use crate::sys::fork_check::Process;
use crate::sys::panics;
use crate::task::late::Late;

/// The callbacks of one loop.
#[derive(Default)]
pub(super) struct Callbacks {
    pub(super) this_turn: Once,
    pub(super) next_turn: Once,
    pub(super) before_park: Hooks,
    pub(super) after_turn: Hooks,
    /// Callbacks that are added while the loop ends.
    late: Late,
}

impl Callbacks {
    pub(super) fn run_this_turn(&self, callback: impl FnOnce() + 'static) {
        self.push(&self.this_turn, callback);
    }

    pub(super) fn run_next_turn(&self, callback: impl FnOnce() + 'static) {
        self.push(&self.next_turn, callback);
    }

    pub(super) fn before_park(self: &Rc<Self>, callback: impl FnMut() + 'static) -> Hook {
        self.hook(|all| &all.before_park, callback)
    }

    pub(super) fn after_turn(self: &Rc<Self>, callback: impl FnMut() + 'static) -> Hook {
        self.hook(|all| &all.after_turn, callback)
    }

    fn push(&self, list: &Once, callback: impl FnOnce() + 'static) {
        if self.late.has_begun() {
            self.late.add(callback);
        } else {
            list.push(Box::new(callback));
        }
    }

    fn hook(self: &Rc<Self>, list: fn(&Self) -> &Hooks, callback: impl FnMut() + 'static) -> Hook {
        let place = if self.late.has_begun() {
            self.late.add(callback);
            usize::MAX
        } else {
            list(self).insert(callback)
        };
        Hook { callbacks: Rc::downgrade(self), list, place }
    }

    /// Begins the loop's end. Callbacks that are added from now on never run.
    pub(super) fn begin_end(&self) {
        let once = self.this_turn.len() + self.next_turn.len();
        self.late.begin(once + self.before_park.len() + self.after_turn.len());
    }

    /// Drops all callbacks without running them, and also those that the drops queue. In a forked
    /// child of `process` they are leaked: they may own a lock that a thread of the parent held at
    /// the fork.
    pub(super) fn end(&self, process: Process) {
        let once = [&self.this_turn, &self.next_turn].map(|once| once.queue.take());
        let hooks = [&self.before_park, &self.after_turn].map(|hooks| hooks.hooks.take());
        for once in once {
            process.each_unless_forked(once, panics::discard);
        }
        for hooks in hooks {
            process.each_unless_forked(hooks, panics::discard);
        }
        self.drop_late(process);
    }

    /// Drops the callbacks that were added since the end began. `false`: there was none.
    pub(super) fn drop_late(&self, process: Process) -> bool {
        self.late.drop_all(process)
    }
}

/// Callbacks that run once, in the order in which they were queued.
#[derive(Default)]
pub(super) struct Once {
    queue: RefCell<VecDeque<Box<dyn FnOnce()>>>,
}

impl Once {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    fn push(&self, callback: Box<dyn FnOnce()>) {
        self.queue.borrow_mut().push_back(callback);
    }

    /// Runs the first callback. `false`: there is none.
    #[inline]
    pub(super) fn run_first(&self) -> bool {
        let first = self.queue.borrow_mut().pop_front();
        let Some(callback) = first else { return false };
        panics::contain(callback);
        true
    }
}

type Repeated = Rc<RefCell<dyn FnMut()>>;

/// Callbacks that run again and again, until their [`Hook`] is dropped. Each has a number, because
/// a new hook may get the place of one that was dropped.
#[derive(Default)]
pub(super) struct Hooks {
    hooks: RefCell<Slab<(u64, Repeated)>>,
    next: Cell<u64>,
}

impl Hooks {
    fn insert(&self, callback: impl FnMut() + 'static) -> usize {
        let number = self.next.get();
        self.next.set(number + 1);
        self.hooks.borrow_mut().insert((number, Rc::new(RefCell::new(callback))))
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.hooks.borrow().is_empty()
    }

    fn len(&self) -> usize {
        self.hooks.borrow().len()
    }

    /// Runs each hook that exists when this begins once. Returns how many ran. If one of them
    /// forks, none runs after it in the child. `process` is the loop's.
    pub(super) fn run(&self, process: &Process) -> u64 {
        let new = self.next.get();
        let places: Vec<_> = self.hooks.borrow().iter().map(|(place, _)| place).collect();
        let mut ran = 0;
        for place in places {
            if process.is_forked() {
                break;
            }
            // Another hook may have dropped this one, and added one in its place.
            let hook = self.hooks.borrow().get(place).cloned();
            let Some((_, hook)) = hook.filter(|(number, _)| *number < new) else { continue };
            ran += 1;
            panics::contain(|| {
                // The borrow fails only for a hook that runs its own loop's hooks, which is
                // impossible.
                if let Ok(mut hook) = hook.try_borrow_mut() {
                    hook();
                }
            });
            // A hook that has dropped its own `Hook` is dropped here.
            panics::discard(hook);
        }
        ran
    }

    fn remove(&self, place: usize) {
        let hook = self.hooks.borrow_mut().try_remove(place);
        panics::discard(hook);
    }
}

/// Keeps a [`before_park`](crate::before_park) or [`after_turn`](crate::after_turn) callback
/// registered. Dropping it removes the callback, even from within that callback.
///
/// # Threads
/// Neither `Send` nor `Sync`: it stays on its loop's thread.
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
