//! For how long a CPU is worth holding, if held time has a price.
//!
//! A loop that holds its CPU also sleeps, so it sees the length of every gap, whether its CPU was
//! held or not. So this governor needs no trials, unlike the governor of spins. It reads the same
//! estimate of the gaps, of which no part is hidden.

use super::WORTH;
use super::gaps::{Gaps, LONGEST, Wanted};

/// The time between two ticks of most kernels. A sleep of at least a tick needs no timer interrupt
/// of its own, which in a virtual machine costs microseconds.
pub(crate) const TICK: u64 = 4_000_000;
/// The share of the events that a hold should meet, if a hold that is worth its price can.
const MEETS: f32 = 0.999;
/// After this many gaps the limit is computed again.
const REVIEW: u32 = 32;
/// The first limit is computed after this many gaps. If as many gaps in a row contradict the
/// present limit, that is no coincidence.
const FEW: u32 = 8;
/// The longest spin to assume before the cost of a wake is known.
const UNKNOWN: u64 = 1_000_000;

/// Decides how long a loop with [`Hold`](crate::idle::Hold) keeps its CPU held while no event
/// comes.
///
/// An event that finds its CPU halted waits for a wake. So an event that finds its CPU awake is
/// worth a spin of twice `max_window`, as in [`Governor`](super::Governor). A held microsecond
/// costs `cost` times a spun one, so an event is worth a hold of twice `max_window` divided by
/// `cost`. No hold is longer than that (or than a kernel tick, 4 ms, if the tick is longer), nor
/// longer than the silence. At a cost of 0 each hold lasts for a silence. Within these limits the
/// governor chooses the shortest hold that meets 999 of 1,000 events. If no hold does, it chooses
/// the one whose met events are worth most above its cost, or no hold.
///
/// It has no clock: the caller passes the length of the gaps, so a simulator can use it. Times are
/// nanoseconds. It never allocates.
///
/// # Threads
/// A value like any other; each loop has its own.
#[derive(Debug, Clone)]
pub struct HoldGovernor {
    silence: u64,
    cost: f64,
    /// The longest spin that would be worth its cost.
    max_window: u64,
    gaps: Gaps,
    /// For how long the loop holds the CPU now; 0: not at all.
    limit: u64,
    until_review: u32,
    /// How many gaps in a row have contradicted the present limit.
    surprises: u32,
}

impl HoldGovernor {
    /// Returns a governor that has seen no events. It holds as long as it may. `cost` is 0 to 1.
    #[must_use]
    pub fn new(silence: u64, cost: f64) -> Self {
        let mut governor = Self {
            silence,
            cost,
            max_window: UNKNOWN,
            gaps: Gaps::new(),
            limit: 0,
            until_review: FEW,
            surprises: 0,
        };
        governor.limit = governor.most();
        governor
    }

    /// Sets the longest spin that is worth its cost on this machine, from now on.
    pub fn set_max_window(&mut self, ns: u64) {
        self.max_window = ns;
        self.limit = if self.limit == 0 { 0 } else { self.most() };
        self.until_review = self.until_review.min(FEW);
    }

    /// Returns how long the CPU is to be held while no event comes; 0: not at all.
    #[inline]
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Notes an event after a gap of this length.
    #[inline]
    pub fn event_after(&mut self, gap: u64) {
        if self.cost > 0.0 {
            self.learn(gap);
        }
    }

    fn learn(&mut self, gap: u64) {
        self.gaps.closed_after(self.scaled(gap));
        let is_surprise = if self.limit == 0 {
            // Of the gaps that come at random times and are worth a hold, more than two in five are
            // shorter than this.
            gap < (self.worth() / 2.0) as u64
        } else {
            gap >= self.most()
        };
        self.surprises = if is_surprise { self.surprises + 1 } else { 0 };
        if self.surprises >= FEW {
            // The load has changed, so what was learnt of the previous load says nothing about it.
            self.gaps.fade_to(1.0);
            self.limit = if self.limit == 0 { self.most() } else { 0 };
            (self.surprises, self.until_review) = (0, FEW);
            return;
        }
        self.until_review -= 1;
        if self.until_review == 0 {
            self.review();
        }
    }

    fn review(&mut self) {
        self.until_review = REVIEW;
        let (least, most) = (self.least(), self.most());
        let found = self.gaps.windows(Wanted {
            share: MEETS,
            least: self.scaled(least),
            most: self.scaled(most),
            worth: (self.worth() / f64::from(1_u32 << self.shift())) as f32,
        });
        let limit = found.meets.unwrap_or(found.best) << self.shift();
        self.limit = if limit == 0 { 0 } else { limit.clamp(least, most) };
    }

    /// The shortest possible hold.
    fn least(&self) -> u64 {
        TICK.min(self.silence)
    }

    fn most(&self) -> u64 {
        // The longest possible hold. A wait that lasts as long as its event is worth never costs
        // more than twice the best choice.
        self.silence.min((self.worth() as u64).max(TICK))
    }

    /// How long a hold an event is worth.
    fn worth(&self) -> f64 {
        if self.cost > 0.0 {
            f64::from(WORTH) * self.max_window as f64 / self.cost
        } else {
            f64::INFINITY
        }
    }

    /// Scales a time down, because the estimate of gaps ends at [`LONGEST`], and a silence may be a
    /// second.
    fn scaled(&self, ns: u64) -> u64 {
        ns >> self.shift()
    }

    fn shift(&self) -> u32 {
        (self.silence / LONGEST).checked_ilog2().map_or(0, |log| log + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SILENCE: u64 = 50 * MS;

    /// What happened in the simulated gaps.
    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        gaps: u32,
        met: u32,
        held: u64,
        time: u64,
    }

    impl Seen {
        fn gap(&mut self, governor: &mut HoldGovernor, gap: u64) {
            let limit = governor.limit();
            self.gaps += 1;
            self.met += u32::from(gap < limit);
            self.held += gap.min(limit);
            self.time += gap;
            governor.event_after(gap);
        }
    }

    /// An exponential random number. The sequence is always the same.
    fn exponential(mean: f64, seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let uniform = ((*seed >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-mean * uniform.ln()) as u64
    }

    fn random(cost: f64, mean: f64) -> Seen {
        let (mut governor, mut seed) = (HoldGovernor::new(SILENCE, cost), 42);
        let mut seen = Seen::default();
        for _ in 0..5_000 {
            seen.gap(&mut governor, exponential(mean, &mut seed));
        }
        seen
    }

    #[test]
    fn what_costs_nothing_is_held_to_the_end_of_every_silence() {
        let mut governor = HoldGovernor::new(SILENCE, 0.0);
        for gap in [1, MS, SILENCE, 1_000 * MS].into_iter().cycle().take(1_000) {
            assert_eq!(governor.limit(), SILENCE);
            governor.event_after(gap);
        }
        for max_window in [0, 10 * MS] {
            governor.set_max_window(max_window);
            assert_eq!(governor.limit(), SILENCE);
        }
    }

    /// Events at random times. The mean gap is worth a hold, or not.
    #[test]
    fn the_dearer_held_time_is_the_busier_a_loop_has_to_be() {
        // An event is worth a spin of 2 ms.
        for (cost, pays, does_not) in [(1.0, 1e6, 4e6), (0.1, 10e6, 40e6), (0.05, 20e6, 80e6)] {
            let (busy, quiet) = (random(cost, pays), random(cost, does_not));
            assert!(busy.met > busy.gaps / 2, "{cost}: {busy:?}");
            assert!(quiet.held < quiet.time / 20, "{cost}: {quiet:?}");
        }
    }

    #[test]
    fn at_the_price_of_a_spin_it_lasts_as_long_or_a_tick() {
        let mut governor = HoldGovernor::new(SILENCE, 1.0);
        governor.set_max_window(2 * MS);
        assert_eq!(governor.limit(), TICK);
        governor.set_max_window(10 * MS);
        assert_eq!(governor.limit(), 20 * MS);
        // The limit is no longer than a silence, even if the silence is shorter than a tick.
        assert_eq!(HoldGovernor::new(MS, 1.0).limit(), MS);
    }

    /// Nine gaps of 20 µs and one of 200 ms: a hold after a group meets no event.
    #[test]
    fn of_events_in_groups_the_group_is_held_and_a_tick_behind_it() {
        let (mut governor, mut seen) = (HoldGovernor::new(SILENCE, 0.05), Seen::default());
        for number in 0..5_000 {
            seen.gap(&mut governor, if number % 10 == 9 { 200 * MS } else { 20_000 });
        }
        assert!(seen.met > 4_400, "{seen:?}");
        // If the hold lasted up to the longest limit, 40 ms, the share would be a fifth.
        assert!(seen.held < seen.time / 30, "{seen:?}");
    }

    #[test]
    fn what_nothing_ends_is_not_held() {
        let (mut governor, mut seen) = (HoldGovernor::new(SILENCE, 0.1), Seen::default());
        (0..1_000).for_each(|_| seen.gap(&mut governor, 1_000 * MS));
        assert!(seen.held < 10 * 20 * MS, "{seen:?}");
        // When traffic comes, the CPU is held again from the ninth event on,
        let mut busy = Seen::default();
        (0..1_000).for_each(|_| busy.gap(&mut governor, 100_000));
        assert!(busy.met >= 1_000 - FEW, "{busy:?}");
        // and released when the traffic is over.
        let mut quiet = Seen::default();
        (0..100).for_each(|_| quiet.gap(&mut governor, 100 * MS));
        assert!(quiet.held <= u64::from(FEW) * 10 * MS, "{quiet:?}");
    }

    #[test]
    fn a_silence_of_any_length_is_one() {
        for silence in [MS, 2 * MS, LONGEST, 50 * MS, 1_000 * MS] {
            let mut governor = HoldGovernor::new(silence, 1e-6);
            assert_eq!(governor.limit(), silence);
            // Events that all come a little before the end of the silence.
            (0..1_000).for_each(|_| governor.event_after(silence - silence / 50));
            assert!(governor.limit() > silence - silence / 50, "{silence}: {}", governor.limit());
        }
    }
}
