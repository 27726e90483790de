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

/// The time constant of the mean, in nanoseconds: the mean forgets two thirds in this time. One
/// review is too short to go by, because with requests that take a millisecond each, ten
/// milliseconds contain only a handful.
const MEMORY: f64 = 100e6;

/// If the loops have been busy for this share of their time, the group grows without waiting for
/// the mean,
const FULL: f64 = 0.95;

/// when every review of this time, in nanoseconds, found them so.
const FULL_FOR: u64 = 40_000_000;

/// A loop becomes inactive only if the others then stay this far below the target. Otherwise it
/// would soon be needed again.
const ROOM: f64 = 0.75;

/// And only if that has been so for this long, in nanoseconds.
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
/// It has no clock: the caller passes the time and the utilisations, so a simulator can use it.
/// Times are nanoseconds on one monotonic clock.
///
/// # Threads
/// A value like any other.
#[derive(Debug, Clone)]
pub struct Activity {
    loops: usize,
    targets: Targets,
    active: usize,
    /// The time of the last review, and the mean at that time.
    mean: Option<(u64, f64)>,
    /// The time since which every review has found all active loops busy.
    full_since: Option<u64>,
    /// The time since which one active loop fewer would have been enough.
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

    /// Returns how many loops are active. They are the first ones of the group.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active
    }

    /// Returns the settings.
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
            // A loop that is busy all the time does not show how much more work waits. So the new
            // number may be too small, and the next review checks again.
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

    /// Takes over the number of active loops that another part of the program has decided.
    pub(crate) fn follow(&mut self, active: usize) {
        if self.active != active {
            self.active = active;
            self.calm_since = None;
        }
    }

    /// Activates one more loop, because no active loop returns from its turn. The new loop stays
    /// active for a while.
    pub(crate) fn one_more(&mut self) -> usize {
        self.active = (self.active + 1).min(self.loops);
        self.calm_since = None;
        self.active
    }

    /// How busy the loops were in about the last tenth of a second.
    fn mean(&mut self, now: u64, busy: f64) -> f64 {
        // Nobody knows how long the time before the first review was. (This is a branch, not a
        // default value, because an optimised build may calculate with both values and choose
        // afterwards, of which valgrind warns.)
        let Some((last, mean)) = self.mean else {
            self.mean = Some((now, 0.0));
            return 0.0;
        };
        let kept = (-(now.saturating_sub(last) as f64) / MEMORY).exp();
        let mean = mean * kept + busy * (1.0 - kept);
        self.mean = Some((now, mean));
        mean
    }

    /// Have all loops been busy for so long that it is no coincidence?
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
