//! Tasks and callbacks that are added to a loop while it ends. They never run, and are dropped
//! before the end is over.
//!
//! A drop at the loop's end may add something whose drop adds something, and so on. Nested drops
//! would use up the stack. So what is added waits here and is dropped later, and the number is
//! bounded.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::sys::fork_check::Process;
use crate::sys::panics;

/// How many things may be added, in addition to one for each thing that the loop had.
const MORE: usize = 10_000;

/// What waits to be dropped. See the [module](self).
#[derive(Default)]
pub(crate) struct Late {
    waiting: RefCell<VecDeque<Box<dyn Any>>>,
    has_begun: Cell<bool>,
    /// How many may still be added.
    allowance: Cell<usize>,
    is_logged: Cell<bool>,
}

impl Late {
    /// Begins the end of a loop that has `present` tasks or callbacks.
    pub(crate) fn begin(&self, present: usize) {
        self.has_begun.set(true);
        self.allowance.set(present.saturating_add(MORE));
    }

    /// Has the end begun? From then on, everything new belongs here.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.get()
    }

    /// Drops `added` later. It is leaked if too much was added before.
    #[cold]
    pub(crate) fn add(&self, added: impl Any) {
        let allowance = self.allowance.get();
        if allowance > 0 {
            self.allowance.set(allowance - 1);
            self.waiting.borrow_mut().push_back(Box::new(added));
            return;
        }
        std::mem::forget(added);
        if !self.is_logged.replace(true) {
            panics::log!(
                error,
                "destructors that run at the event loop's end add tasks or callbacks without end. The loop leaks \
                 what they add from now on. Do not spawn in a destructor what spawns again when it is dropped"
            );
        }
    }

    /// Drops everything, including what the drops add. `false`: there was nothing, or this is a
    /// forked child of `process`, where it is leaked.
    pub(crate) fn drop_all(&self, process: Process) -> bool {
        let mut any = false;
        loop {
            if process.is_forked() {
                std::mem::forget(self.waiting.take());
                return false;
            }
            let first = self.waiting.borrow_mut().pop_front();
            let Some(first) = first else { return any };
            any = true;
            panics::discard(first);
        }
    }
}
