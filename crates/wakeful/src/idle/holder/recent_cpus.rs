//! Which CPUs a loop sleeps on: a thread that is not pinned moves between a few.
//!
//! At most two are held. A loop that moves between more CPUs would ask the keeper at each sleep. So
//! held CPUs stay held while the loop uses them, and others are held only seldom: instead of a CPU
//! that the loop has left, or if the loop sleeps elsewhere a few times in a row.

use std::time::{Duration, Instant};

/// How long a CPU that the loop has left stays held.
const RECENT: Duration = Duration::from_millis(200);
/// While CPUs are held, the loop asks for others no more often than this.
const CHANGE_EVERY: Duration = Duration::from_millis(50);
/// After this many sleeps in a row on CPUs that are not held, the present CPU replaces one that is.
const ELSEWHERE: u32 = 4;

/// The CPUs that are held, or will be.
#[derive(Debug, Default)]
pub(super) struct RecentCpus {
    held: [Option<Used>; 2],
    changed: Option<Instant>,
    /// Sleeps in a row on CPUs that are not held.
    elsewhere: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Used {
    cpu: usize,
    last: Instant,
}

impl RecentCpus {
    /// Called when the loop sleeps on `cpu` while CPUs are held. Returns whether the CPUs to hold
    /// have changed.
    #[inline]
    pub(super) fn sleeps_on(&mut self, cpu: usize) -> bool {
        // A loop that stays on its CPU does not read the clock here.
        let stays = matches!(self.held, [Some(used), None] if used.cpu == cpu);
        !stays && self.sleeps(cpu, Instant::now())
    }

    /// Called when a hold begins. A request is sent anyway, so the CPU of this sleep is always
    /// included.
    pub(super) fn begins_on(&mut self, cpu: usize) {
        self.begins(cpu, Instant::now());
    }

    /// The CPUs to hold, in ascending order.
    pub(super) fn get(&self) -> Vec<usize> {
        let mut cpus: Vec<usize> = self.held.into_iter().flatten().map(|used| used.cpu).collect();
        cpus.sort_unstable();
        cpus
    }

    #[cold]
    fn sleeps(&mut self, cpu: usize, now: Instant) -> bool {
        let is_held = self.uses(cpu, now);
        self.elsewhere = if is_held { 0 } else { self.elsewhere.saturating_add(1) };
        if self.changed.is_some_and(|changed| now.duration_since(changed) < CHANGE_EVERY) {
            return false;
        }
        let forgot = self.forget(now);
        let takes = !is_held && (self.held.contains(&None) || self.elsewhere >= ELSEWHERE);
        if takes {
            self.take(cpu, now);
        }
        if forgot || takes {
            self.changed = Some(now);
        }
        forgot || takes
    }

    fn begins(&mut self, cpu: usize, now: Instant) {
        self.forget(now);
        if !self.uses(cpu, now) {
            self.take(cpu, now);
            self.changed = Some(now);
        }
    }

    /// Notes that the CPU is used now. Returns whether it is one of those to hold.
    fn uses(&mut self, cpu: usize, now: Instant) -> bool {
        let used = self.held.iter_mut().flatten().find(|used| used.cpu == cpu);
        let is_held = used.is_some();
        if let Some(used) = used {
            used.last = now;
        }
        is_held
    }

    /// Removes CPUs that the loop left long ago. Returns whether there were any.
    fn forget(&mut self, now: Instant) -> bool {
        let before = self.held;
        for used in &mut self.held {
            *used = used.filter(|used| now.duration_since(used.last) < RECENT);
        }
        self.held.sort_by_key(Option::is_none);
        self.held != before
    }

    /// Adds a CPU. If both places are taken, it replaces the CPU that the loop left first.
    fn take(&mut self, cpu: usize, now: Instant) {
        let oldest = self.held.iter_mut().min_by_key(|used| used.map(|used| used.last));
        self.elsewhere = 0;
        if let Some(oldest) = oldest {
            *oldest = Some(Used { cpu, last: now });
        }
        self.held.sort_by_key(Option::is_none);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun_on(cpu: usize) -> (RecentCpus, Instant) {
        let (mut cpus, now) = (RecentCpus::default(), Instant::now());
        cpus.begins(cpu, now);
        (cpus, now)
    }

    fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn a_loop_that_stays_where_it_is_changes_nothing() {
        let (mut cpus, begun) = begun_on(3);
        for after in [0, 60, 1000] {
            assert!(!cpus.sleeps(3, begun + milliseconds(after)));
        }
        assert!(!cpus.sleeps_on(3));
        assert_eq!(cpus.get(), [3]);
    }

    #[test]
    fn a_loop_that_moves_between_two_cpus_has_both_held() {
        let (mut cpus, begun) = begun_on(3);
        assert!(cpus.sleeps(1, begun + CHANGE_EVERY));
        assert_eq!(cpus.get(), [1, 3]);
        for sleep in 1..100 {
            let cpu = if sleep % 2 == 0 { 1 } else { 3 };
            assert!(!cpus.sleeps(cpu, begun + CHANGE_EVERY + sleep * milliseconds(10)));
        }
    }

    #[test]
    fn a_loop_that_goes_round_three_cpus_keeps_the_two_that_it_has() {
        let (mut cpus, begun) = begun_on(0);
        let changes = (0..1000).filter(|sleep: &u32| {
            let cpu = sleep % 3;
            cpus.sleeps(cpu as usize, begun + *sleep * milliseconds(1))
        });
        assert_eq!(changes.count(), 1);
        assert_eq!(cpus.get().len(), 2);
    }

    #[test]
    fn a_loop_that_has_moved_has_its_cpu_held_though_it_visits_others() {
        let (mut cpus, begun) = begun_on(8);
        cpus.begins(9, begun);
        let mut held = 0;
        for sleep in 0..10_000_u32 {
            let now = begun + sleep * milliseconds(1);
            let cpu = if sleep % 7 == 0 { 8 + sleep % 2 } else { 3 };
            cpus.sleeps(cpu as usize, now);
            held += u32::from(cpus.get().contains(&3));
        }
        assert!(held > 9_000, "{held} of 10,000");
    }

    #[test]
    fn whatever_a_loop_does_there_is_a_change_in_50_ms_at_most() {
        let (mut cpus, begun) = begun_on(0);
        let mut changed = begun;
        let mut changes = 0;
        for sleep in 0..20_000 {
            // The loop uses each CPU for longer than it is remembered, with short visits to others
            // in between.
            let now = begun + sleep * Duration::from_micros(700);
            let cpu = if sleep % 7 == 0 { 8 + sleep % 5 } else { sleep / 300 % 8 };
            if cpus.sleeps(cpu as usize, now) {
                assert!(now - changed >= CHANGE_EVERY);
                (changed, changes) = (now, changes + 1);
            }
            assert!((1..=2).contains(&cpus.get().len()));
        }
        assert!(changes > 10, "{changes}");
    }

    #[test]
    fn a_cpu_that_was_left_long_ago_is_let_go() {
        let (mut cpus, begun) = begun_on(3);
        assert!(cpus.sleeps(1, begun + CHANGE_EVERY));
        assert!(!cpus.sleeps(1, begun + RECENT - milliseconds(1)));
        assert!(cpus.sleeps(1, begun + RECENT));
        assert_eq!(cpus.get(), [1]);
        // Also if the loop was on neither of the two.
        assert!(cpus.sleeps(2, begun + RECENT + CHANGE_EVERY));
        assert!(cpus.sleeps(5, begun + 3 * RECENT));
        assert_eq!(cpus.get(), [5]);
    }

    #[test]
    fn a_hold_that_begins_has_the_cpu_of_its_first_sleep() {
        let (mut cpus, begun) = begun_on(3);
        cpus.begins(1, begun + milliseconds(1));
        cpus.begins(2, begun + milliseconds(2));
        assert_eq!(cpus.get(), [1, 2]);
        cpus.begins(7, begun + RECENT + RECENT);
        assert_eq!(cpus.get(), [7]);
    }
}
