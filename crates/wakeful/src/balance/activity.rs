//! How many loops of a group take connections: few under light load, all under heavy load.

/// The settings of a group that [concentrates](crate::LoopGroupBuilder::concentrate) its load. A
/// value out of range becomes the nearest value in the range.
///
/// | setting | default | range |
/// |---|---|---|
/// | [`utilisation`](Self::utilisation) | 0.6 | 0.05 to 0.95 |
/// | [`least`](Self::least) | 1 | 1 to the number of loops |
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use = "a setter returns the changed targets"]
pub struct Targets {
    pub(crate) utilisation: f64,
    least: usize,
}

impl Targets {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the target utilisation: the share of its time that a loop should spend on work. The
    /// group activates another loop when the active loops exceed this target. NaN means the
    /// default.
    pub fn utilisation(mut self, share: f64) -> Self {
        self.utilisation = share;
        self
    }

    /// Sets the minimum number of active loops.
    pub fn least(mut self, loops: usize) -> Self {
        self.least = loops;
        self
    }
}

impl Default for Targets {
    fn default() -> Self {
        Self { utilisation: 0.6, least: 1 }
    }
}

/// A review alone tells too little: of requests that take a millisecond each, ten milliseconds see
/// a handful. So a group grows by the mean, which forgets two thirds in this long, in nanoseconds.
const MEMORY: f64 = 100e6;

/// But it does not wait for that mean if its loops have worked for this share of their time,
const FULL: f64 = 0.95;

/// at each review of this long, in nanoseconds.
const FULL_FOR: u64 = 40_000_000;

/// A loop more is let go only if the rest then stay this far below the target, so that it is not
/// missed at once.
const ROOM: f64 = 0.75;

/// And if that has been so for this long, in nanoseconds.
const CALM: u64 = 500_000_000;

/// Decides how many loops of a group are active. The other loops keep their connections, and sleep.
///
/// Spreading the load conflicts with staying awake. With 10,000 requests a second over 16 loops,
/// each loop has 1.6 ms between two requests. So each loop either sleeps in between, and every
/// request pays for a wake, or it spins and uses a whole CPU. On one loop there are 0.1 ms between
/// requests. So a group concentrates the load on as few loops as can handle it, and spreads as the
/// load grows.
///
/// *Growth* is quick: if the mean of about a tenth of a second is above the target, or all active
/// loops have worked without a pause for 40 ms, the group activates as many loops as are needed to
/// return to the target, at least one. *Shrinking* is slow: the group deactivates one loop after
/// half a second in which, at every review, the remaining loops would have stayed a quarter below
/// the target. In between nothing changes.
///
/// Pure: the caller passes the time and the utilisations, so a simulator can use it. Times are
/// nanoseconds on one monotonic clock.
///
/// # Threads
/// A value like any other.
#[derive(Debug, Clone)]
pub struct Activity {
    loops: usize,
    targets: Targets,
    active: usize,
    /// When the last review was, and the mean then.
    mean: Option<(u64, f64)>,
    /// Since when every review found all active loops busy.
    full_since: Option<u64>,
    /// Since when one loop fewer would do.
    calm_since: Option<u64>,
}

impl Activity {
    /// Makes it for a group with this number of loops. It begins with the smallest number of active
    /// loops.
    #[must_use]
    pub fn new(loops: usize, targets: Targets) -> Self {
        let utilisation = if targets.utilisation.is_nan() { 0.6 } else { targets.utilisation };
        let loops = loops.max(1);
        let targets = Targets {
            utilisation: utilisation.clamp(0.05, 0.95),
            least: targets.least.clamp(1, loops),
        };
        Self {
            loops,
            targets,
            active: targets.least,
            mean: None,
            full_since: None,
            calm_since: None,
        }
    }

    /// How many loops are active: the first so many.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active
    }

    /// What it aims at.
    pub fn targets(&self) -> Targets {
        self.targets
    }

    /// Returns how many loops should be active now. `busy` is the work of all loops together since
    /// the last review: 2.5 is as much as two and a half loops can do.
    pub fn review(&mut self, now: u64, busy: f64) -> usize {
        let target = self.targets.utilisation;
        let busy = if busy.is_nan() { 0.0 } else { busy.max(0.0) };
        let active = self.active as f64;
        let mean = self.mean(now, busy);
        let full = self.is_full(now, busy);
        if full || mean > target * active {
            // A loop that has more to do than it can is busy all the time, however much it is: so
            // it may be too few, and is looked at again.
            let needed = if full { busy.max(mean) } else { mean };
            let enough = (needed / target).ceil() as usize;
            self.active = enough.max(self.active + 1).min(self.loops);
            self.calm_since = None;
        } else if self.active > self.targets.least
            && busy.max(mean) < target * ROOM * (active - 1.0)
        {
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

    /// So many are active, as somebody else has decided.
    pub(crate) fn follow(&mut self, active: usize) {
        if self.active != active {
            self.active = active;
            self.calm_since = None;
        }
    }

    /// No active loop comes back from its turn: one more has to be. It is left alone for a while.
    pub(crate) fn one_more(&mut self) -> usize {
        self.active = (self.active + 1).min(self.loops);
        self.calm_since = None;
        self.active
    }

    /// How busy they were for about a tenth of a second.
    fn mean(&mut self, now: u64, busy: f64) -> f64 {
        // Nobody knows how long the first one was. (A branch, and no default for what is not there:
        // an optimised build may calculate with both and choose behind that, of which valgrind
        // warns.)
        let Some((last, mean)) = self.mean else {
            self.mean = Some((now, 0.0));
            return 0.0;
        };
        let kept = (-(now.saturating_sub(last) as f64) / MEMORY).exp();
        let mean = mean * kept + busy * (1.0 - kept);
        self.mean = Some((now, mean));
        mean
    }

    /// Have they all been busy for so long that it is no chance?
    fn is_full(&mut self, now: u64, busy: f64) -> bool {
        if busy < FULL * self.active as f64 {
            self.full_since = None;
            return false;
        }
        now.saturating_sub(*self.full_since.get_or_insert(now)) >= FULL_FOR
    }
}

#[cfg(test)]
mod tests;
