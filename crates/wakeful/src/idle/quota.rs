//! A CPU quota lowers what spinning may use: what is left of the quota beside the work, and less as soon as the kernel throttles.
//!
//! Work is this process's; what others in its cgroup use shows only by throttling, which halves what is allowed. One look a second for the whole process, by whichever loop comes first while it spins; what it finds is a number that each loop reads.

mod cgroup;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use self::cgroup::Group;
use crate::driver::thread::process_time;

/// So much of a quota may be used with spinning, so that a burst of work has room.
const USED: f64 = 0.8;

/// How long a loop goes without a look, in nanoseconds.
pub(super) const LOOK_EVERY: u64 = 1_000_000_000;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Quota {
    groups: Vec<Group>,
    last: Mutex<Option<Look>>,
    /// Nanoseconds that all loops have spun since the last look, and how many loops said so.
    spun: AtomicU64,
    loops: AtomicU64,
    /// What a loop may use, in millionths of a CPU.
    share: AtomicU64,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    used: Duration,
    throttled: u64,
    /// What spinning may use in all loops together, of a CPU.
    allowed: f64,
}

/// Nothing is limited.
const UNLIMITED: u64 = 1_000_000;

impl Quota {
    /// This process's. The first call reads a few files; [`Survey`](super::survey) makes it.
    pub(super) fn find() -> &'static Self {
        static FOUND: OnceLock<Quota> = OnceLock::new();
        FOUND.get_or_init(|| Self {
            groups: Group::of_this_process(),
            last: Mutex::new(None),
            spun: AtomicU64::new(0),
            loops: AtomicU64::new(0),
            share: AtomicU64::new(UNLIMITED),
        })
    }

    /// A loop has spun for so many nanoseconds since it asked last. Returns which share of a CPU it may use from now on.
    pub(super) fn look(&self, spun: u64) -> f64 {
        if self.groups.is_empty() {
            return 1.0;
        }
        self.spun.fetch_add(spun, Ordering::Relaxed);
        self.loops.fetch_add(1, Ordering::Relaxed);
        // Another loop is looking just now: its answer will do, next time.
        if let Ok(mut last) = self.last.try_lock() {
            self.look_again(&mut last);
        }
        self.share.load(Ordering::Relaxed) as f64 / UNLIMITED as f64
    }

    fn look_again(&self, last: &mut Option<Look>) {
        let at = Instant::now();
        let soon = Duration::from_nanos(LOOK_EVERY / 2);
        if last.as_ref().is_some_and(|last| at - last.at < soon) {
            return;
        }
        let limited = self.groups.iter().filter_map(|group| Some((group.cpus()?, group)));
        let Some((cpus, group)) = limited.min_by(|(one, _), (other, _)| one.total_cmp(other))
        else {
            *last = None;
            self.share.store(UNLIMITED, Ordering::Relaxed);
            return;
        };
        let (used, throttled) = (process_time(), group.throttled());
        let spun = Duration::from_nanos(self.spun.swap(0, Ordering::Relaxed));
        let loops = self.loops.swap(0, Ordering::Relaxed).max(1);
        let allowed = match last {
            None => cpus * USED / 2.0,
            Some(last) => {
                let work = used.saturating_sub(last.used).saturating_sub(spun);
                let work = work.as_secs_f64() / (at - last.at).as_secs_f64();
                allowed(cpus, work, last.allowed, throttled > last.throttled)
            }
        };
        *last = Some(Look { at, used, throttled, allowed });
        let share = (allowed / loops as f64).clamp(0.0, 1.0);
        self.share.store((share * UNLIMITED as f64) as u64, Ordering::Relaxed);
    }
}

/// What spinning may use, of a quota of `cpus` beside `work`, when it was `before` until now.
fn allowed(cpus: f64, work: f64, before: f64, was_throttled: bool) -> f64 {
    let left = (cpus * USED - work).max(0.0);
    // Up slowly, down at once.
    let careful = if was_throttled { before / 2.0 } else { before * 1.1 + cpus * 0.01 };
    left.min(careful)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_spinning_together_stay_below_the_quota() {
        let mut share = 0.08;
        for _ in 0..100 {
            share = allowed(0.2, 0.05, share, false);
        }
        assert!((share - 0.11).abs() < 1e-9, "{share}");
        assert!(allowed(0.2, 0.3, share, false) == 0.0);
    }

    #[test]
    fn throttling_halves_it_and_it_comes_back_slowly() {
        let throttled = allowed(0.2, 0.0, 0.16, true);
        assert!((throttled - 0.08).abs() < 1e-9);
        assert!(allowed(0.2, 0.0, throttled, false) < 0.1);
    }

    #[test]
    fn where_nothing_is_limited_everything_is_allowed() {
        let quota = Quota {
            groups: Vec::new(),
            last: Mutex::new(None),
            spun: AtomicU64::new(0),
            loops: AtomicU64::new(0),
            share: AtomicU64::new(0),
        };
        assert!((quota.look(1) - 1.0).abs() < f64::EPSILON);
    }
}
