//! Decides when the events of a process are closed for a while. This makes no system calls.
//!
//! An event costs the counted thread one to two microseconds at each context switch, and half a
//! microsecond while it is disabled. Events are needed during silence, because they report its end
//! without regular wakes of the watcher. While there is much traffic, `/proc` has the counts as
//! well, and only the reader pays for it.
//!
//! `/proc` may miss switches that an event counts: those of children whose parent ended before they
//! were listed. So both count for one interval first, and the events are closed only if `/proc` has
//! seen most of the switches. As soon as it sees few, the events are opened again, because they
//! show when traffic ends.

/// If there are more threads, they are not read 20 times a second.
pub(super) const MOST_THREADS: usize = 64;
/// If there are more events, they are not closed, and no more than these are opened again, which
/// costs some 10 µs each.
pub(super) const MOST_EVENTS: usize = 512;
/// Below this many switches per check, events are cheaper than reading …
const BUSY: u64 = 32;
/// … and below this many for each thread.
const BUSY_THREAD: u64 = 8;
/// Below this many for each thread, events are opened again.
const QUIET_THREAD: u64 = 2;
/// Events that were opened again stay for this many checks.
const STAY: u32 = 10;
/// The same if `/proc` misses switches.
const STAY_LONG: u32 = 200;
/// How many of 4 switches `/proc` must see.
const SEEN_OF_4: u64 = 3;

/// What counts the switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Means {
    Events,
    Both,
    Proc,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Relief {
    /// How many more checks the events stay.
    stay: u32,
}

/// The counts of one interval.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Look {
    pub(super) by_events: u64,
    pub(super) by_proc: u64,
    /// How many threads `/proc` knows.
    pub(super) threads: usize,
}

impl Relief {
    /// What should count until the next check.
    pub(super) fn next(&mut self, means: Means, is_traffic: bool, look: Look) -> Means {
        let Look { by_events, by_proc, threads } = look;
        let for_each = |switches: u64| switches.saturating_mul(threads as u64);
        match means {
            Means::Events if self.stay > 0 => {
                self.stay -= 1;
                Means::Events
            }
            Means::Events if is_traffic && by_events >= BUSY => Means::Both,
            Means::Events => Means::Events,
            Means::Both => {
                let sees = by_proc.saturating_mul(4) >= by_events.saturating_mul(SEEN_OF_4);
                let is_busy = by_events >= BUSY.max(for_each(BUSY_THREAD));
                if is_traffic && is_busy && sees && threads <= MOST_THREADS {
                    return Means::Proc;
                }
                self.stay = if is_busy { STAY_LONG } else { STAY };
                Means::Events
            }
            Means::Proc if is_traffic && by_proc >= for_each(QUIET_THREAD).max(1) => Means::Proc,
            Means::Proc => {
                self.stay = STAY;
                Means::Events
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(by_events: u64, by_proc: u64, threads: usize) -> Look {
        Look { by_events, by_proc, threads }
    }

    #[test]
    fn much_traffic_is_left_to_proc_once_both_agree() {
        let mut relief = Relief::default();
        let mut next =
            |means, by_events, by_proc| relief.next(means, true, look(by_events, by_proc, 5));
        assert_eq!(next(Means::Events, 500, 0), Means::Both);
        assert_eq!(next(Means::Both, 500, 490), Means::Proc);
        assert_eq!(next(Means::Proc, 0, 500), Means::Proc);
        assert_eq!(next(Means::Proc, 0, 10), Means::Proc, "twice a thread");
        assert_eq!(next(Means::Proc, 0, 9), Means::Events);
        for _ in 0..STAY {
            assert_eq!(next(Means::Events, 500, 0), Means::Events, "for a while");
        }
        assert_eq!(next(Means::Events, 500, 0), Means::Both);
    }

    #[test]
    fn what_proc_does_not_see_is_left_to_the_events() {
        let mut relief = Relief::default();
        let mut next = |means, by_proc| relief.next(means, true, look(1_000, by_proc, 5));
        assert_eq!(next(Means::Both, 749), Means::Events);
        for _ in 0..STAY_LONG {
            assert_eq!(next(Means::Events, 0), Means::Events);
        }
        assert_eq!(next(Means::Events, 0), Means::Both);
        assert_eq!(next(Means::Both, 750), Means::Proc);
    }

    #[test]
    fn little_traffic_many_threads_and_silence_are_left_to_the_events() {
        let next = |means, is_traffic, look| Relief::default().next(means, is_traffic, look);
        assert_eq!(next(Means::Events, true, look(31, 0, 0)), Means::Events);
        assert_eq!(next(Means::Events, false, look(1_000, 0, 0)), Means::Events);
        assert_eq!(next(Means::Both, true, look(39, 39, 5)), Means::Events);
        assert_eq!(next(Means::Both, true, look(40, 40, 5)), Means::Proc);
        assert_eq!(next(Means::Both, true, look(100_000, 100_000, 65)), Means::Events);
        assert_eq!(next(Means::Both, false, look(1_000, 1_000, 5)), Means::Events);
        assert_eq!(next(Means::Proc, false, look(0, 1_000, 5)), Means::Events);
        assert_eq!(next(Means::Proc, true, look(0, 0, 0)), Means::Events, "all have ended");
    }
}
