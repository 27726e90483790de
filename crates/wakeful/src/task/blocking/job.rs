//! A piece of blocking work: first its closure, then its outcome, and the task that waits for it.
//!
//! The lock is held only while something is moved in or out. Closures run, and closures, outcomes
//! and wakers are cloned and dropped, outside of it, because all of them are user code.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use atomic_waker::AtomicWaker;

use crate::sys::panics;
use crate::task::registration::register;

/// What the closure returned, or the payload of its panic.
pub(super) type Outcome<T> = Result<T, Box<dyn Any + Send>>;

/// A job as the pool's threads see it.
pub(super) trait Run: Send + Sync {
    /// Runs the closure on this thread, unless it has run. Does not panic.
    ///
    /// After that, `is_forked` tells whether this is a child that the closure forked. In such a
    /// child the outcome is leaked, because a thread of the parent may have held the lock at the
    /// fork.
    fn run(&self, is_forked: &dyn Fn() -> bool);

    /// Wakes the task that waits for the outcome, though there may be none. Does not panic.
    fn wake_waiter(&self);
}

/// A job as its handle sees it.
pub(super) trait Join<T>: Send + Sync {
    /// `None`: the job was aborted.
    fn poll(&self, waker: &Waker) -> Poll<Option<Outcome<T>>>;

    /// Drops the closure if it is not running yet, and wakes the task that waits. A closure that is
    /// running continues, and its outcome is dropped on its thread. A job that has run keeps its
    /// outcome.
    fn abort(&self);

    /// Removes the waker, because nobody waits for the outcome any more.
    fn forget_waiter(&self);

    /// Has the job run to its end, or was it aborted?
    fn is_over(&self) -> bool;
}

/// A job with its lock. See the [module](self).
pub(super) struct Job<F, T> {
    stage: Mutex<Stage<F, T>>,
    waiter: AtomicWaker,
}

enum Stage<F, T> {
    Waiting(F),
    Running,
    Done(Outcome<T>),
    Taken,
    Aborted,
}

impl<F, T> Job<F, T> {
    pub(super) fn new(f: F) -> Self {
        Self { stage: Mutex::new(Stage::Waiting(f)), waiter: AtomicWaker::new() }
    }

    /// Takes the lock. Nothing panics while it is held, so poisoning is ignored.
    fn stage(&self) -> MutexGuard<'_, Stage<F, T>> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if let Some(waiter) = self.waiter.take() {
            panics::wake(waiter);
        }
    }

    fn take_closure(&self) -> Option<F> {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Running) {
            Stage::Waiting(f) => Some(f),
            other => {
                *stage = other;
                None
            }
        }
    }

    /// Aborts the job, and returns what was in it. `None`: it is over already.
    fn take_unfinished(&self) -> Option<Stage<F, T>> {
        let mut stage = self.stage();
        let unfinished = matches!(*stage, Stage::Waiting(_) | Stage::Running);
        unfinished.then(|| std::mem::replace(&mut *stage, Stage::Aborted))
    }

    fn take_outcome(&self) -> Poll<Option<Outcome<T>>> {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Done(outcome) => Poll::Ready(Some(outcome)),
            Stage::Aborted => {
                *stage = Stage::Aborted;
                Poll::Ready(None)
            }
            other => {
                *stage = other;
                Poll::Pending
            }
        }
    }

    /// Stores the outcome. Returns it if nobody will take it.
    fn done(&self, outcome: Outcome<T>) -> Option<Outcome<T>> {
        let mut stage = self.stage();
        if matches!(*stage, Stage::Aborted) {
            return Some(outcome);
        }
        *stage = Stage::Done(outcome);
        None
    }
}

impl<F, T> Run for Job<F, T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn run(&self, is_forked: &dyn Fn() -> bool) {
        let Some(f) = self.take_closure() else { return };
        let outcome = catch_unwind(AssertUnwindSafe(f));
        if is_forked() {
            std::mem::forget(outcome);
            return;
        }
        panics::discard(self.done(outcome));
        self.wake();
    }

    fn wake_waiter(&self) {
        self.wake();
    }
}

impl<F, T> Join<T> for Job<F, T>
where
    F: Send,
    T: Send,
{
    fn poll(&self, waker: &Waker) -> Poll<Option<Outcome<T>>> {
        if let Poll::Ready(outcome) = self.take_outcome() {
            return Poll::Ready(outcome);
        }
        // The old waker is removed first, because `register` would drop it with its lock held, and
        // never release the lock if the drop panics.
        self.forget_waiter();
        register(&self.waiter, waker);
        // The job may have ended just before.
        self.take_outcome()
    }

    fn abort(&self) {
        let Some(left) = self.take_unfinished() else { return };
        panics::discard(left);
        self.wake();
    }

    fn forget_waiter(&self) {
        let waiter = self.waiter.take();
        panics::discard(waiter);
    }

    fn is_over(&self) -> bool {
        matches!(*self.stage(), Stage::Done(_) | Stage::Taken | Stage::Aborted)
    }
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, OnceLock, Weak};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_outcome_wakes_who_waits_and_is_there_once() {
        let woken = Arc::new(Count::default());
        let waker = woken.clone().into();
        let job = Job::new(|| 42);
        assert!(job.poll(&waker).is_pending());
        job.run(&|| false);
        job.run(&|| false);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(matches!(job.poll(&waker), Poll::Ready(Some(Ok(42)))));
        assert!(job.poll(&waker).is_pending());
    }

    #[test]
    fn in_a_child_that_it_forked_the_outcome_is_forgotten() {
        let woken = Arc::new(Count::default());
        let job = Job::new(|| 42);
        assert!(job.poll(&woken.clone().into()).is_pending());
        job.run(&|| true);
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        assert!(job.poll(Waker::noop()).is_pending());
    }

    #[test]
    fn a_panic_of_the_closure_is_its_outcome() {
        let job = Job::new(|| panic!("blocked"));
        job.run(&|| false);
        let Poll::Ready(Some(outcome)) = job.poll(Waker::noop()) else { panic!("it has run") };
        let payload: Box<dyn Any + Send> = outcome.map(|()| "no panic").unwrap_err();
        assert_eq!(panics::message(&*payload), Some("blocked"));
    }

    #[test]
    fn an_abort_drops_what_is_there_and_wakes_who_waits() {
        let (woken, owned) = (Arc::new(Count::default()), Arc::new(()));
        let job = Job::new({
            let owned = owned.clone();
            move || owned
        });
        assert!(job.poll(&woken.clone().into()).is_pending());
        job.abort();
        job.abort();
        assert_eq!((woken.0.load(Ordering::Relaxed), Arc::strong_count(&owned)), (1, 1));
        job.run(&|| false);
        assert!(matches!(job.poll(Waker::noop()), Poll::Ready(None)));

        let itself: Arc<OnceLock<Weak<dyn Join<Arc<()>>>>> = Arc::default();
        let job = Arc::new(Job::new({
            let (itself, owned) = (itself.clone(), owned.clone());
            move || {
                itself.get().and_then(Weak::upgrade).expect("it runs").abort();
                owned
            }
        }));
        let weak: Weak<dyn Join<_>> = Arc::downgrade(&job) as _;
        assert!(itself.set(weak).is_ok());
        job.run(&|| false);
        assert!(matches!(job.poll(Waker::noop()), Poll::Ready(None)));
        assert_eq!(Arc::strong_count(&owned), 1, "what had begun has ended, and is dropped");
    }

    #[test]
    fn an_abort_of_what_has_run_leaves_its_outcome() {
        let job = Job::new(|| 42);
        job.run(&|| false);
        job.abort();
        assert!(matches!(job.poll(Waker::noop()), Poll::Ready(Some(Ok(42)))));
        job.abort();
        assert!(job.poll(Waker::noop()).is_pending(), "taken, and not aborted");
    }

    #[test]
    fn a_waker_of_a_handle_that_is_gone_is_dropped() {
        let woken = Arc::new(Count::default());
        let job = Job::new(|| ());
        assert!(job.poll(&woken.clone().into()).is_pending());
        job.forget_waiter();
        job.run(&|| false);
        assert_eq!((woken.0.load(Ordering::Relaxed), Arc::strong_count(&woken)), (0, 1));
    }
}
