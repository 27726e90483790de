//! How many loops of a group should be awake to connections: few when there is little to do, all when there is much.

/// What an [`Activity`] aims at. Out of range becomes the nearest in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Targets {
    /// The utilisation up to which a loop is left alone: the share of its time, 0.05 to 0.95, that it spends on work. Above it, another loop is woken.
    pub utilisation: f64,
    /// The fewest loops that are active, 1 and more.
    pub least: usize,
}

impl Default for Targets {
    fn default() -> Self {
        Self { utilisation: 0.6, least: 1 }
    }
}

/// A loop more is let go only if the rest then stay this far below the target, so that it is not missed at once.
const ROOM: f64 = 0.75;

/// And if that has been so for this long, in nanoseconds.
const CALM: u64 = 500_000_000;

/// Decides how many loops of a group are active. The others keep what they have, and sleep.
///
/// Spreading and staying awake fight each other: 10,000 requests a second over 16 loops are 1.6 ms between two requests of a loop, so each of them sleeps in between and every request pays for a wake, or each
/// spins and burns a CPU. Over one loop they are 0.1 ms. So a group concentrates what there is on as few loops as can do it, and spreads as the load grows.
///
/// *Growth* is at once: as many loops as bring the mean utilisation back to the target, and one at least. *Shrinking* is slow: one loop after half a second in which the rest
/// would have stayed a quarter below the target. In between nothing changes.
///
/// Pure: it is told the time and the utilisations and asks nobody, so that a simulator can use it. Times are nanoseconds on one monotonic clock.
///
/// *Threads*: a value like any other.
///
/// ```
/// use wakeful::group::{Activity, Targets};
///
/// let mut activity = Activity::new(8, Targets::default());
/// assert_eq!(activity.active(), 1);
/// // One loop, and it is nearly always busy.
/// assert_eq!(activity.review(0, 0.95), 2);
/// ```
#[derive(Debug, Clone)]
pub struct Activity {
    loops: usize,
    targets: Targets,
    active: usize,
    /// Since when one loop fewer would do.
    calm_since: Option<u64>,
}

impl Activity {
    /// For a group of so many loops. It begins with the fewest.
    #[must_use]
    pub fn new(loops: usize, targets: Targets) -> Self {
        let utilisation = if targets.utilisation.is_nan() { 0.6 } else { targets.utilisation };
        let loops = loops.max(1);
        let targets = Targets {
            utilisation: utilisation.clamp(0.05, 0.95),
            least: targets.least.clamp(1, loops),
        };
        Self { loops, targets, active: targets.least, calm_since: None }
    }

    /// How many loops are active: the first so many.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active
    }

    /// What it aims at.
    #[must_use]
    pub fn targets(&self) -> Targets {
        self.targets
    }

    /// All loops together were busy for `busy` of their time since the last review: 2.5 is as much work as two and a half loops can do. How many should be active now?
    pub fn review(&mut self, now: u64, busy: f64) -> usize {
        let target = self.targets.utilisation;
        let busy = if busy.is_nan() { 0.0 } else { busy.max(0.0) };
        let active = self.active as f64;
        if busy > target * active {
            // A loop that has more to do than it can is busy all the time, however much it is: so it may be too few, and is looked at again.
            let enough = (busy / target).ceil() as usize;
            self.active = enough.max(self.active + 1).min(self.loops);
            self.calm_since = None;
        } else if self.active > self.targets.least && busy < target * ROOM * (active - 1.0) {
            let since = *self.calm_since.get_or_insert(now);
            if now.saturating_sub(since) >= CALM {
                self.active -= 1;
                self.calm_since = Some(now);
            }
        } else {
            self.calm_since = None;
        }
        self.active
    }
}

#[cfg(test)]
mod tests;
