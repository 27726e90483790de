//! Verdicts on whether a fixed window beats the governor.

use wakeful::internals::GovernorLimits;

use crate::costs::Costs;
use crate::outcome::Outcome;
use crate::policy::{Policy, WINDOWS};
use crate::replay::replay;
use crate::trace::Trace;

/// Medians that differ by at most this share count as equal.
pub const SAME_P50: f64 = 0.01;
/// Shares of a CPU that differ by at most this count as equal.
pub const SAME_CPU: f64 = 0.01;

/// A trace under each policy: the governor first, then [`WINDOWS`], then a spin for ever.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The trace's name.
    pub trace: String,
    /// The outcome under each policy.
    pub outcomes: Vec<(Policy, Outcome)>,
}

/// How a fixed window compares with the governor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Better in both the median and the CPU: the governor is beaten.
    Beats,
    /// An equal median for less CPU. (With a longer window there are fewer sleeps in the tail.)
    Cheaper,
    /// A better median for equal CPU.
    Faster,
    /// None of these.
    Behind,
}

impl Compared {
    /// Replays a trace under each policy.
    #[must_use]
    pub fn new(trace: &Trace, limits: GovernorLimits, costs: &Costs) -> Self {
        let windows = WINDOWS.into_iter().map(Policy::Window);
        let policies =
            std::iter::once(Policy::Adaptive(limits)).chain(windows).chain([Policy::Spin]);
        let outcomes = policies.map(|policy| (policy, replay(&trace.arrivals, policy, costs)));
        Self { trace: trace.name.clone(), outcomes: outcomes.collect() }
    }

    /// Returns the governor's outcome.
    #[must_use]
    pub fn governor(&self) -> &Outcome {
        &self.outcomes[0].1
    }

    /// Returns the fixed windows, and how each compares with the governor.
    pub fn standings(&self) -> impl Iterator<Item = (Policy, &Outcome, Standing)> {
        let windows =
            self.outcomes.iter().filter(|(policy, _)| matches!(policy, Policy::Window(_)));
        windows.map(|(policy, outcome)| (*policy, outcome, standing(outcome, self.governor(), 0.0)))
    }

    /// Returns whether a fixed window beats the governor.
    #[must_use]
    pub fn is_beaten(&self) -> bool {
        self.standings().any(|(_, _, standing)| standing == Standing::Beats)
    }
}

/// Compares a fixed window, or silence, with the governor, if held time costs `price` of a spin.
pub(crate) fn standing(window: &Outcome, governor: &Outcome, price: f64) -> Standing {
    let p50 = window.response(0.5) / governor.response(0.5) - 1.0;
    let cpu = window.priced(price) - governor.priced(price);
    match (p50, cpu) {
        _ if p50 < -SAME_P50 && cpu < -SAME_CPU => Standing::Beats,
        _ if p50 < -SAME_P50 && cpu <= SAME_CPU => Standing::Faster,
        _ if p50 <= SAME_P50 && cpu < -SAME_CPU => Standing::Cheaper,
        _ => Standing::Behind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Calibration;
    use crate::trace::{self, Length};

    fn outcome(p50: u64, cpu: f64) -> Outcome {
        Outcome { responses: vec![p50], elapsed: 100.0, work: cpu * 100.0, ..Outcome::default() }
    }

    #[test]
    fn a_window_beats_only_who_is_worse_in_both() {
        let against = |p50, cpu| standing(&outcome(p50, cpu), &outcome(10_000, 0.5), 0.0);
        assert_eq!(against(9_800, 0.48), Standing::Beats);
        assert_eq!(against(9_950, 0.48), Standing::Cheaper);
        assert_eq!(against(9_800, 0.505), Standing::Faster);
        assert_eq!(against(9_800, 0.6), Standing::Behind);
        assert_eq!(against(10_200, 0.1), Standing::Behind);
        assert_eq!(against(10_000, 0.5), Standing::Behind);
    }

    #[test]
    fn what_is_held_counts_at_its_price() {
        let held = Outcome { held: 20.0, ..outcome(9_800, 0.4) };
        let at = |price| standing(&held, &outcome(10_000, 0.5), price);
        assert_eq!(
            [at(0.0), at(0.5), at(1.0)],
            [Standing::Beats, Standing::Faster, Standing::Behind]
        );
    }

    /// This is so for every length of a wake, and so for every length of the longest window.
    #[test]
    fn no_fixed_window_beats_the_governor_on_any_trace() {
        let costs = Calibration::committed().costs;
        let windows = [(1, costs.max_window()), (2, 200_000), (3, 750_000), (4, 2_000_000)];
        for (seed, max_window) in windows {
            let limits = GovernorLimits { hit_rate: 0.999, max_window, max_cpu: 1.0 };
            for trace in trace::all(Length::SHORT, seed) {
                let compared = Compared::new(&trace, limits, &costs);
                let point = |outcome: &Outcome| (outcome.response(0.5), outcome.cpu());
                let beaten_by: Vec<_> = compared
                    .standings()
                    .filter(|(_, _, standing)| *standing == Standing::Beats)
                    .map(|(policy, outcome, _)| (policy.name(), point(outcome)))
                    .collect();
                assert!(
                    beaten_by.is_empty(),
                    "{}, up to {max_window} ns: {:?} is beaten by {beaten_by:?}",
                    trace.name,
                    point(compared.governor())
                );
            }
        }
    }
}
