//! Points in the ready queue's push where a producer can be stopped.
//!
//! `ReadyQueue::push_at` calls a closure at each point. In production the closure is [`at`], which
//! does nothing. In unit tests [`at`] calls a hook of the thread. Experiments pass their own
//! closure through `internals`.

/// A point within the ready queue's push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
// Public for `internals`, which is a feature.
#[cfg_attr(not(feature = "internals"), allow(unreachable_pub))]
pub enum Point {
    /// The producer has not read the queue's head yet.
    Start,
    /// The node is linked, but the head is not swapped yet.
    Linked,
    /// The node is in the queue, but the bell has not been rung yet.
    Pushed,
}

#[cfg(not(all(test, not(wakeful_loom))))]
#[inline(always)]
pub(crate) fn at(_: Point) {}

#[cfg(all(test, not(wakeful_loom)))]
pub(crate) use self::hook::{at, set_for_this_thread};

#[cfg(all(test, not(wakeful_loom)))]
mod hook {
    use super::Point;
    use std::cell::RefCell;

    type Hook = Box<dyn FnMut(Point)>;

    thread_local! {
        static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    /// From now on, `hook` is called at each point that this thread passes.
    pub(crate) fn set_for_this_thread(hook: impl FnMut(Point) + 'static) {
        HOOK.with(|slot| *slot.borrow_mut() = Some(Box::new(hook)));
    }

    /// Runs this thread's hook, if it has one.
    #[inline]
    pub(crate) fn at(point: Point) {
        HOOK.with(|slot| {
            if let Ok(mut slot) = slot.try_borrow_mut()
                && let Some(hook) = slot.as_mut()
            {
                hook(point);
            }
        });
    }
}
