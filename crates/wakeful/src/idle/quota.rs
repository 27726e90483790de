//! A CPU quota limits spinning to the part of the quota that work leaves over, and to less as soon
//! as the kernel throttles.
//!
//! Only this process's work is known; the use of other processes in its cgroup shows only by
//! throttling, which halves the allowance. The first loop that spins in a second checks for the
//! whole process; the result is a number that each loop reads.

mod cgroup;

use std::io;
#[cfg(feature = "internals")]
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use once_cell::race::OnceBox;

use self::cgroup::Group;
use crate::sys::panics;
use crate::sys::thread::process_time;

/// The share of a quota that work and spinning together may use, so that a burst of work has room.
const USED: f64 = 0.8;

/// How often a loop checks, in nanoseconds.
pub(super) const LOOK_EVERY: u64 = 1_000_000_000;

/// What a CPU quota leaves for spinning: see above.
#[derive(Debug)]
pub struct Quota {
    groups: Vec<Group>,
    last: Mutex<Option<Look>>,
    /// The nanoseconds that all loops have spun since the last check, and how many loops reported.
    spun: AtomicU64,
    loops: AtomicU64,
    /// The share that each loop may use, in millionths of a CPU.
    share: AtomicU64,
}

#[derive(Debug)]
struct Look {
    at: Instant,
    used: Duration,
    throttled: u64,
    /// How many loops reported between this check and the one before it.
    loops: u64,
    /// How much CPU time all loops together may spin, in CPUs.
    allowed: f64,
}

/// The share of a loop without a limit.
const UNLIMITED: u64 = 1_000_000;

impl Quota {
    /// The quota of this process. The first call reads a few files. [`Survey`](super::survey) makes
    /// it.
    ///
    /// # Errors
    /// This process or the system lacks descriptors or memory: it is not known yet.
    pub fn find() -> io::Result<&'static Self> {
        // There is no lock, because a forked child would inherit it from the thread that reads.
        static FOUND: OnceBox<Quota> = OnceBox::new();
        FOUND.get_or_try_init(|| {
            let quota = Self::of(Group::of_this_process()?);
            // The log line is here, because a check must not allocate, and a log line might.
            let limits = quota.groups.iter().filter_map(|group| group.cpus().ok().flatten());
            if let Some(cpus) = limits.reduce(f64::min) {
                panics::log!(
                    info,
                    cpus,
                    "this process has a CPU quota: spinning and work together stay below four fifths of it"
                );
            }
            Ok(Box::new(quota))
        })
    }

    fn of(groups: Vec<Group>) -> Self {
        Self {
            groups,
            last: Mutex::new(None),
            spun: AtomicU64::new(0),
            loops: AtomicU64::new(0),
            share: AtomicU64::new(UNLIMITED),
        }
    }

    /// Returns the quota of this directory, which takes the place of a cgroup (v2).
    #[cfg(feature = "internals")]
    pub fn of_directory(directory: PathBuf) -> Self {
        Self::of(vec![Group::of_version_two(directory)])
    }

    /// Returns which share of a CPU a loop may spin for from now on. `spun` is how long the loop
    /// has spun since its last call, in nanoseconds. Allocates nothing.
    pub fn look(&self, spun: u64) -> f64 {
        if self.groups.is_empty() {
            return 1.0;
        }
        self.spun.fetch_add(spun, Ordering::Relaxed);
        self.loops.fetch_add(1, Ordering::Relaxed);
        // Another loop is checking just now. This loop uses the result next time.
        if let Some(mut last) = panics::try_lock(&self.last) {
            self.look_again(&mut last);
        }
        self.share.load(Ordering::Relaxed) as f64 / UNLIMITED as f64
    }

    fn look_again(&self, last: &mut Option<Look>) {
        let at = Instant::now();
        // Checks are nearly as far apart as those of each loop, so that each loop is counted.
        let soon = Duration::from_nanos(LOOK_EVERY / 10 * 9);
        if last.as_ref().is_some_and(|last| at - last.at < soon) {
            return;
        }
        let limits = self.groups.iter().filter_map(|group| match group.cpus() {
            Ok(None) => None,
            Ok(Some(cpus)) => Some(group.throttled().map(|throttled| (cpus, throttled))),
            Err(error) => Some(Err(error)),
        });
        // All limits count, because the tightest one is not always the one that is used up: other
        // processes share those of parent groups.
        let tightest = limits.reduce(|one, other| {
            let (one, other) = (one?, other?);
            Ok((one.0.min(other.0), one.1 + other.1))
        });
        // Without a free descriptor the quota is not known, and what was allowed before stays so.
        let Ok(tightest) = tightest.transpose() else { return };
        let Some((cpus, throttled)) = tightest else {
            *last = None;
            self.share.store(UNLIMITED, Ordering::Relaxed);
            return;
        };
        let used = process_time();
        let spun = Duration::from_nanos(self.spun.swap(0, Ordering::Relaxed));
        let loops = self.loops.swap(0, Ordering::Relaxed).max(1);
        let (allowed, share) = match last {
            // The number of loops is known only after a second. Until then no loop spins.
            None => (cpus * USED / 2.0, 0.0),
            Some(last) => {
                let work = used.saturating_sub(last.used).saturating_sub(spun);
                let work = work.as_secs_f64() / (at - last.at).as_secs_f64();
                let allowed = allowed(cpus, work, last.allowed, throttled > last.throttled);
                // The previous number counts too, because a loop that reported a little late is
                // still there.
                (allowed, (allowed / loops.max(last.loops) as f64).clamp(0.0, 1.0))
            }
        };
        *last = Some(Look { at, used, throttled, loops, allowed });
        self.share.store((share * UNLIMITED as f64) as u64, Ordering::Relaxed);
    }
}

/// How much CPU time may be spun, with a quota of `cpus`, and `work` that uses some of it. It was
/// `before` until now.
fn allowed(cpus: f64, work: f64, before: f64, was_throttled: bool) -> f64 {
    let left = (cpus * USED - work).max(0.0);
    // The allowance rises slowly and falls at once.
    let careful = if was_throttled { before / 2.0 } else { before * 1.1 + cpus * 0.01 };
    left.min(careful)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quota of one CPU, in a group that has four.
    fn with_quota(name: &str, test: impl FnOnce(Quota)) {
        let dir = std::env::temp_dir().join(format!("wakeful-{name}-{}", std::process::id()));
        let own = dir.join("own");
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("cpu.max"), "100000 100000\n").unwrap();
        std::fs::write(dir.join("cpu.max"), "400000 100000\n").unwrap();
        test(Quota {
            groups: [own, dir.clone()].map(Group::of_version_two).to_vec(),
            last: Mutex::new(None),
            spun: AtomicU64::new(0),
            loops: AtomicU64::new(0),
            share: AtomicU64::new(UNLIMITED),
        });
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// Pretends that this much time has passed since the last check.
    fn later(quota: &Quota, by: Duration) {
        quota.last.lock().unwrap().as_mut().unwrap().at -= by;
    }

    #[test]
    fn loops_that_look_for_the_first_time_share_the_quota() {
        with_quota("first", |quota| {
            for _ in 0..3 {
                let together: f64 = (0..8).map(|_| quota.look(0)).sum();
                assert!(together <= USED, "{together} of a CPU");
                later(&quota, Duration::from_secs(1));
            }
        });
    }

    #[test]
    fn throttling_of_a_group_above_counts() {
        with_quota("above", |quota| {
            let allowed = || quota.last.lock().unwrap().as_ref().unwrap().allowed;
            quota.look(0);
            let before = allowed();
            std::fs::write(quota.groups[1].dir().join("cpu.stat"), "nr_throttled 1\n").unwrap();
            later(&quota, Duration::from_secs(1));
            quota.look(0);
            assert!(allowed() <= before / 2.0, "{before} and then {}", allowed());
        });
    }

    #[test]
    fn loops_that_look_in_turns_share_the_quota() {
        with_quota("turns", |quota| {
            let mut shares = [0.0; 2];
            for look in 0..20 {
                shares[look % 2] = quota.look(0);
                later(&quota, Duration::from_millis(501));
                let together: f64 = shares.iter().sum();
                assert!(together <= USED, "{together} of a CPU");
            }
        });
    }

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
