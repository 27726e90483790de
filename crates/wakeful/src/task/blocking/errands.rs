//! Errands: short calls that are repeated each second until they have done their work.
//!
//! They are for work that has no thread of its own because none could be started.
//! [`on_errand`](mod@super::on_errand) says who runs them.
//!
//! No lock is held while errands run. The thread that runs them has taken them out of the list, and
//! they still count as left. So no loop's timer ends while another thread runs them.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Threads and loops each ask once a second whether errands are due. Their seconds do not begin at
/// the same time, so errands are due sooner.
const MIN_PAUSE: Duration = Duration::from_millis(500);

/// Returns whether it has done its work.
type Errand = Box<dyn FnMut() -> bool + Send>;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Errands {
    list: Mutex<List>,
    /// How many are in the list, or are running.
    left: AtomicUsize,
}

#[derive(Default)]
struct List {
    waiting: Vec<Errand>,
    /// When they were run last.
    ran_at: Option<Instant>,
}

impl Errands {
    pub(super) fn add(&self, errand: impl FnMut() -> bool + Send + 'static) {
        let errand = Box::new(errand);
        self.left.fetch_add(1, Ordering::Relaxed);
        self.list().waiting.push(errand);
    }

    /// Takes no lock.
    pub(super) fn are_left(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Are there errands that have not run for a while?
    pub(super) fn are_due(&self) -> bool {
        if !self.are_left() {
            return false;
        }
        let list = self.list();
        !list.waiting.is_empty() && list.ran_at.is_none_or(|at| at.elapsed() >= MIN_PAUSE)
    }

    /// Returns whether any has done its work.
    pub(super) fn run_if_due(&self) -> bool {
        self.are_due() && self.run()
    }

    /// Runs all, except those that another thread is running. Returns whether any has done its
    /// work.
    pub(super) fn run(&self) -> bool {
        let mut list = self.list();
        list.ran_at = Some(Instant::now());
        let mut taken = mem::take(&mut list.waiting);
        drop(list);
        let before = taken.len();
        taken.retain_mut(|errand| !errand());
        let done = before - taken.len();
        self.list().waiting.append(&mut taken);
        self.left.fetch_sub(done, Ordering::Relaxed);
        done > 0
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn an_errand_that_runs_is_left_and_holds_no_lock() {
        let errands = Arc::new(Errands::default());
        let (there, calls) = (errands.clone(), Arc::new(AtomicUsize::new(0)));
        let called = calls.clone();
        errands.add(move || {
            assert!(there.are_left() && !there.are_due() && there.list.try_lock().is_ok());
            called.fetch_add(1, Ordering::Relaxed) == 1
        });
        assert!(errands.are_due() && !errands.run());
        assert!(errands.are_left());
        assert!(errands.run());
        assert!(!errands.are_left() && !errands.are_due() && !errands.run());
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn an_errand_that_another_one_gives_is_kept() {
        let errands = Arc::new(Errands::default());
        let (there, ran) = (errands.clone(), Arc::new(AtomicBool::new(false)));
        let runs = ran.clone();
        errands.add(move || {
            let runs = runs.clone();
            there.add(move || {
                runs.store(true, Ordering::Relaxed);
                true
            });
            true
        });
        assert!(errands.run() && errands.are_left() && !ran.load(Ordering::Relaxed));
        assert!(errands.run() && !errands.are_left() && ran.load(Ordering::Relaxed));
    }
}
