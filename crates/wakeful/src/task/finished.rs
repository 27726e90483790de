//! Which tasks of a set have finished: a stack that any thread adds to, and that the set takes
//! whole.
//!
//! Each task of a set has a [`Member`], which is the waker of the task's handle. The end of the
//! task wakes it, and that adds it to the set's stack. It is added by a compare-and-swap and taken
//! by a swap. So the set waits for no thread that is in the middle of an addition, and an addition
//! allocates nothing.
//!
//! **Ownership.** A member in the stack, or in a [`Chain`], owns one count of its `Arc`, and is
//! added at most once. It refers to its set by a `Weak`, so when a set is gone, the members in its
//! stack go with it.
//!
//! **Memory order.** Additions release and the taking acquires. Each addition is a
//! read-modify-write of the same word, so the taking comes after all of them: it finds their tasks
//! complete.

use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use atomic_waker::AtomicWaker;

use super::registration::register;
use crate::sys::fork_check::SharedMark;
use crate::sys::panics;

/// The stack of one set. See the [module](self).
#[derive(Default)]
pub(super) struct Finished {
    last: AtomicPtr<Member>,
    waiter: AtomicWaker,
    /// The process that has registered the waiter. A forked child forgets the parent's, whose code
    /// may take a lock that another thread held at the fork.
    waits_in: SharedMark,
}

/// The place of a task in its set.
pub(super) struct Member {
    set: Weak<Finished>,
    place: usize,
    /// The member that was added before this one. In a chain, the next one.
    next: AtomicPtr<Member>,
    is_added: AtomicBool,
}

impl Member {
    pub(super) fn waker(set: &Arc<Finished>, place: usize) -> Waker {
        let member = Self {
            set: Arc::downgrade(set),
            place,
            next: AtomicPtr::default(),
            is_added: AtomicBool::new(false),
        };
        Arc::new(member).into()
    }
}

impl Wake for Member {
    fn wake(self: Arc<Self>) {
        if self.is_added.swap(true, Relaxed) {
            return;
        }
        if let Some(set) = self.set.upgrade() {
            set.add(self);
            set.wake_waiter();
        }
    }
}

impl Finished {
    fn add(&self, member: Arc<Member>) {
        let member = Arc::into_raw(member).cast_mut();
        let mut last = self.last.load(Relaxed);
        loop {
            // SAFETY: the count is ours until it is in the stack.
            unsafe { &*member }.next.store(last, Relaxed);
            match self.last.compare_exchange_weak(last, member, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => last = now,
            }
        }
    }

    /// Takes the members that have finished, in that order.
    pub(super) fn take(&self) -> Chain {
        if self.last.load(Relaxed).is_null() {
            return Chain::default();
        }
        let mut last = self.last.swap(ptr::null_mut(), Acquire);
        let mut first = ptr::null_mut();
        while let Some(member) = NonNull::new(last) {
            // SAFETY: it was in the stack, and its count is ours now.
            last = unsafe { member.as_ref() }.next.swap(first, Relaxed);
            first = member.as_ptr();
        }
        Chain { first: first.into() }
    }

    /// Has `waker` woken when the next task has finished. Check again after this call, because a
    /// task may have finished just before.
    pub(super) fn wait(&self, waker: &Waker) {
        // The old waker is removed first, because `register` would drop it while it holds its lock.
        self.forget_waiter();
        self.waits_in.set();
        register(&self.waiter, waker);
    }

    pub(super) fn forget_waiter(&self) {
        panics::discard(self.take_waiter());
    }

    pub(super) fn wake_waiter(&self) {
        if let Some(waiter) = self.take_waiter() {
            panics::wake(waiter);
        }
    }

    fn take_waiter(&self) -> Option<Waker> {
        let waiter = self.waiter.take();
        if self.waits_in.is_forked() {
            mem::forget(waiter);
            return None;
        }
        waiter
    }
}

impl Drop for Finished {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Members that were taken from the stack, and whose tasks nobody has joined.
#[derive(Default)]
pub(super) struct Chain {
    first: AtomicPtr<Member>,
}

impl Chain {
    /// Returns the place of the next member.
    pub(super) fn pop(&mut self) -> Option<usize> {
        let first = NonNull::new(*self.first.get_mut())?;
        // SAFETY: `Finished::add` made the pointer of an `Arc`, whose count is the chain's.
        let member = unsafe { Arc::from_raw(first.as_ptr().cast_const()) };
        *self.first.get_mut() = member.next.load(Relaxed);
        Some(member.place)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::thread;

    use super::*;

    fn places(set: &Finished) -> Vec<usize> {
        let mut chain = set.take();
        std::iter::from_fn(|| chain.pop()).collect()
    }

    #[test]
    fn each_is_taken_once_in_the_order_of_its_end() {
        let set = Arc::new(Finished::default());
        let wakers: Vec<_> = (0..4).map(|place| Member::waker(&set, place)).collect();
        for place in [2, 0, 2, 3] {
            wakers[place].wake_by_ref();
        }
        assert_eq!(places(&set), [2, 0, 3]);
        wakers[1].wake_by_ref();
        wakers[0].wake_by_ref();
        assert_eq!(places(&set), [1]);
    }

    #[test]
    fn several_threads_add_and_none_is_lost() {
        let set = Arc::new(Finished::default());
        let wakers: Vec<_> = (0..40).map(|place| Member::waker(&set, place)).collect();
        let mut found = thread::scope(|scope| {
            for some in wakers.chunks(10) {
                scope.spawn(|| some.iter().for_each(Waker::wake_by_ref));
            }
            let mut found = Vec::new();
            while found.len() < wakers.len() {
                found.extend(places(&set));
                thread::yield_now();
            }
            found
        });
        found.sort_unstable();
        assert!(found.into_iter().eq(0..40));
    }

    #[test]
    fn what_nobody_takes_goes_with_its_set_or_its_chain() {
        let set = Arc::new(Finished::default());
        let [first, second, third] = [0, 1, 2].map(|place| Member::waker(&set, place));
        first.wake_by_ref();
        let chain = set.take();
        second.wake();
        drop(set);
        // By now the set is gone.
        third.wake();
        drop(chain);
        first.wake();
    }
}
