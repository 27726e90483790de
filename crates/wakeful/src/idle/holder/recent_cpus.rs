//! Which CPUs a loop sleeps on: a thread that is not pinned moves between a few.

use std::time::{Duration, Instant};

/// A CPU that the loop has left is held for so long.
const RECENT: Duration = Duration::from_millis(200);

/// The CPU of the last sleep, and the one before it if that was a moment ago.
#[derive(Debug, Default)]
pub(super) struct RecentCpus {
    last: Option<usize>,
    left: Option<(usize, Instant)>,
}

impl RecentCpus {
    /// The loop sleeps on `cpu` now. Are there other CPUs to hold than before?
    #[inline]
    pub(super) fn sleeps_on(&mut self, cpu: usize) -> bool {
        self.last != Some(cpu) && self.moved(cpu) || self.left.is_some() && self.forget()
    }

    /// In ascending order.
    pub(super) fn get(&self) -> Vec<usize> {
        let mut cpus: Vec<usize> = self.last.into_iter().collect();
        cpus.extend(self.left.map(|(cpu, _)| cpu));
        cpus.sort_unstable();
        cpus
    }

    #[cold]
    fn moved(&mut self, cpu: usize) -> bool {
        let is_new = self.left.is_none_or(|(left, _)| left != cpu);
        self.left = self.last.map(|last| (last, Instant::now()));
        self.last = Some(cpu);
        is_new
    }

    fn forget(&mut self) -> bool {
        let is_old = self.left.is_some_and(|(_, when)| when.elapsed() >= RECENT);
        if is_old {
            self.left = None;
        }
        is_old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_stays_where_it_is_changes_nothing() {
        let mut cpus = RecentCpus::default();
        assert!(cpus.sleeps_on(3));
        assert!(!cpus.sleeps_on(3));
        assert_eq!(cpus.get(), [3]);
    }

    #[test]
    fn a_loop_that_moves_between_two_cpus_has_both_held() {
        let mut cpus = RecentCpus::default();
        cpus.sleeps_on(3);
        assert!(cpus.sleeps_on(1));
        assert_eq!(cpus.get(), [1, 3]);
        for cpu in [3, 1, 3] {
            assert!(!cpus.sleeps_on(cpu));
        }
        assert!(cpus.sleeps_on(2));
        assert_eq!(cpus.get(), [2, 3]);
    }

    #[test]
    fn a_cpu_that_was_left_long_ago_is_let_go() {
        let mut cpus = RecentCpus::default();
        cpus.sleeps_on(3);
        cpus.sleeps_on(1);
        let long_ago = Instant::now().checked_sub(RECENT).unwrap();
        cpus.left = cpus.left.map(|(cpu, _)| (cpu, long_ago));
        assert!(cpus.sleeps_on(1));
        assert_eq!(cpus.get(), [1]);
        assert!(!cpus.sleeps_on(1));
    }
}
