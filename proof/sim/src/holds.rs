//! Compares the runtime's governor of holds with fixed silences, at several prices of held time.

use wakeful_load::internals::format;
use wakeful_load::internals::results::{Cell, Claim, Column, Table, Unit, Verdict};

use crate::costs::Costs;
use crate::outcome::Outcome;
use crate::policy::{Hold, HoldLength, Policy, SILENCES};
use crate::replay::replay;
use crate::trace::Trace;
use crate::verdict::{Standing, standing};
use wakeful::internals::GovernorLimits;

/// What a loop that holds is simulated with.
#[derive(Debug, Clone)]
pub struct HoldSettings {
    /// The prices, each 0 to 1. The governor of holds is asked at each of them.
    pub prices: Vec<f64>,
    /// The longest hold after an event, in nanoseconds.
    pub silence: u64,
    /// How long a wake takes if the CPU was held, in nanoseconds.
    pub wake: f64,
}

/// A trace under each policy.
#[derive(Debug, Clone)]
pub struct Held {
    trace: String,
    outcomes: Vec<(Policy, Outcome)>,
}

impl HoldSettings {
    /// The governor at this price. At price 0 it always holds for the longest silence.
    #[must_use]
    pub fn governed(&self, cost: f64, costs: &Costs) -> Hold {
        let max_window = costs.max_window();
        let length = match cost {
            0.0 => HoldLength::Silence(self.silence),
            _ => HoldLength::Governor { silence: self.silence, cost, max_window },
        };
        Hold { length, wake: self.wake }
    }

    /// The fixed silences up to the longest.
    fn fixed(&self) -> impl Iterator<Item = Hold> {
        let shorter = SILENCES.into_iter().filter(|silence| *silence < self.silence);
        let lengths = shorter.chain([self.silence]).map(HoldLength::Silence);
        lengths.map(|length| Hold { length, wake: self.wake })
    }
}

impl Held {
    /// Replays a trace under each policy: parking, spinning by the governor of spins, holding by
    /// the governor of holds at each price, holding for fixed silences, and spinning for ever.
    #[must_use]
    pub fn new(
        trace: &Trace,
        settings: &HoldSettings,
        limits: GovernorLimits,
        costs: &Costs,
    ) -> Self {
        let prices = settings.prices.iter().filter(|price| **price > 0.0);
        let governed = prices.map(|price| settings.governed(*price, costs));
        let holds = governed.chain(settings.fixed()).map(Policy::Hold);
        let policies = [Policy::Window(0), Policy::Adaptive(limits)].into_iter();
        let policies = policies.chain(holds).chain([Policy::Spin]);
        let outcomes = policies.map(|policy| (policy, replay(&trace.arrivals, policy, costs)));
        Self { trace: trace.name.clone(), outcomes: outcomes.collect() }
    }

    /// Returns the outcome of the governor at this price. At price 0 that is the outcome of the
    /// longest silence.
    ///
    /// # Panics
    ///
    /// When the governor was not asked at this price.
    #[must_use]
    pub fn governed(&self, price: f64) -> &Outcome {
        let of = |hold: Hold| match hold.length {
            HoldLength::Governor { cost, .. } => cost == price,
            HoldLength::Silence(_) => price == 0.0,
        };
        let is_at = |policy: &Policy| matches!(policy, Policy::Hold(hold) if of(*hold));
        let found = self.outcomes.iter().rfind(|(policy, _)| is_at(policy));
        &found.expect("a price that was asked for").1
    }

    /// The fixed silences, and how each compares with the governor at this price.
    pub fn standings(&self, price: f64) -> impl Iterator<Item = (Policy, &Outcome, Standing)> {
        let governed = self.governed(price);
        let is_fixed = |policy: &Policy| {
            matches!(policy, Policy::Hold(Hold { length: HoldLength::Silence(_), .. }))
        };
        let fixed = self.outcomes.iter().filter(move |(policy, _)| is_fixed(policy));
        fixed.map(move |(policy, outcome)| (*policy, outcome, standing(outcome, governed, price)))
    }

    /// Returns whether a fixed silence beats the governor at this price.
    #[must_use]
    pub fn is_beaten(&self, price: f64) -> bool {
        self.standings(price).any(|(_, _, standing)| standing == Standing::Beats)
    }
}

/// Returns a table with a row for each trace and policy.
#[must_use]
pub fn table(held: &[Held], prices: &[f64]) -> Table {
    let columns = [
        ("trace", Unit::Text),
        ("policy", Unit::Text),
        ("p50", Unit::Nanoseconds),
        ("p90", Unit::Nanoseconds),
        ("p99", Unit::Nanoseconds),
        ("CPU", Unit::Share),
        ("spin", Unit::Share),
        ("held", Unit::Share),
        ("met awake", Unit::Share),
    ];
    let columns = columns.map(|(head, unit)| Column::new(head, unit));
    let priced = prices.iter().map(|price| Column::new(&format!("at {price}"), Unit::Share));
    Table {
        title: "Holds".to_owned(),
        note: "CPU: work, spins and wakes. Held: the share of the time in which the loop slept and its CPU was kept from halting, which is no CPU time. Met awake: of the requests, those that ended a spin or a hold. At a price: CPU, and that share of what was held. A quantile with fewer than 100 responses beyond it is left out.".to_owned(),
        columns: columns.into_iter().chain(priced).collect(),
        rows: held.iter().flat_map(|held| rows(held, prices)).collect(),
    }
}

fn rows<'a>(held: &'a Held, prices: &'a [f64]) -> impl Iterator<Item = Vec<Cell>> + 'a {
    let figure = |value: f64| Cell::of(&[value]);
    held.outcomes.iter().map(move |(policy, outcome)| {
        let words = [Cell::text(&held.trace), Cell::text(policy.name())];
        let tail = |quantile| outcome.tail(quantile).map_or(Cell::Absent, figure);
        let times = [figure(outcome.response(0.5)), tail(0.9), tail(0.99)];
        let share = |time: f64| figure(time / outcome.elapsed);
        let met = outcome.hits as f64 / outcome.responses.len() as f64;
        let shares = [figure(outcome.cpu()), share(outcome.spin), share(outcome.held), figure(met)];
        let priced = prices.iter().map(|price| figure(outcome.priced(*price)));
        words.into_iter().chain(times).chain(shares).chain(priced).collect()
    })
}

/// Returns a verdict for each trace and price.
#[must_use]
pub fn claims(held: &[Held], prices: &[f64]) -> Vec<Claim> {
    let of = |held: &Held| prices.iter().map(|price| claim(held, *price)).collect::<Vec<_>>();
    held.iter().flat_map(of).collect()
}

fn claim(held: &Held, price: f64) -> Claim {
    let governed = held.governed(price);
    let point = |outcome: &Outcome| {
        let (p50, priced) = (outcome.response(0.5), outcome.priced(price));
        format!("{} at {}", format::time(p50), format::percent(priced))
    };
    let beats = |(policy, outcome, standing): (Policy, &Outcome, Standing)| {
        (standing == Standing::Beats).then(|| format!("{} ({})", policy.name(), point(outcome)))
    };
    let beaten_by: Vec<String> = held.standings(price).filter_map(beats).collect();
    let others =
        if beaten_by.is_empty() { String::new() } else { format!("; {}", beaten_by.join("; ")) };
    Claim {
        claim: format!(
            "{}: no fixed silence beats the governor of holds at a price of {price}",
            held.trace
        ),
        measured: point(governed) + &others,
        verdict: if beaten_by.is_empty() { Verdict::Holds } else { Verdict::DoesNotHold },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::costs::Calibration;
    use crate::policy::{HELD_WAKE, SILENCE};
    use crate::trace::{self, Length};

    const PRICES: [f64; 5] = [0.0, 0.003, 0.03, 0.3, 1.0];

    fn settings() -> HoldSettings {
        HoldSettings { prices: PRICES.to_vec(), silence: SILENCE, wake: HELD_WAKE }
    }

    fn limits(costs: &Costs) -> GovernorLimits {
        GovernorLimits { hit_rate: 0.999, max_window: costs.max_window(), max_cpu: 1.0 }
    }

    /// All traces.
    fn all() -> &'static [Held] {
        static ALL: LazyLock<Vec<Held>> = LazyLock::new(|| {
            let costs = Calibration::committed().costs;
            let held = |trace: &Trace| Held::new(trace, &settings(), limits(&costs), &costs);
            trace::all(Length::SHORT, 1).iter().map(held).collect()
        });
        &ALL
    }

    /// This is so at every price of held time.
    #[test]
    fn no_fixed_silence_beats_the_governor_of_holds_on_any_trace() {
        for held in all() {
            for price in PRICES {
                let claim = claim(held, price);
                assert!(!held.is_beaten(price), "{}: {}", claim.claim, claim.measured);
                assert_eq!(claim.verdict, Verdict::Holds);
            }
        }
    }

    /// The cost of held time and the worth of the events that no hold has met, as a share of all
    /// time.
    fn loss(outcome: &Outcome, price: f64, costs: &Costs) -> f64 {
        let worth = 2.0 * costs.max_window() as f64;
        let missed = (outcome.parks - outcome.hits) as f64;
        (price * outcome.held + missed * worth) / outcome.elapsed
    }

    /// Judged by what the governor decides by: the best length is known only afterwards, and it
    /// differs between traces and prices.
    #[test]
    fn the_governor_of_holds_is_near_the_best_fixed_length_on_every_trace() {
        let costs = Calibration::committed().costs;
        for held in all() {
            for price in PRICES.into_iter().filter(|price| *price > 0.0) {
                let fixed = held.standings(price).map(|(_, outcome, _)| outcome);
                let fixed = fixed.chain([&held.outcomes[0].1]);
                let losses = fixed.map(|outcome| loss(outcome, price, &costs));
                let best = losses.fold(f64::INFINITY, f64::min);
                let own = loss(held.governed(price), price, &costs);
                assert!(own < 1.2 * best + 0.02, "{} at {price}: {own}, {best}", held.trace);
            }
        }
    }

    #[test]
    fn the_dearer_held_time_is_the_less_is_held() {
        for held in all() {
            let shares = PRICES.map(|price| {
                let governed = held.governed(price);
                governed.held / governed.elapsed
            });
            let rises = shares.windows(2).find(|pair| pair[1] > pair[0] + 0.02);
            assert!(rises.is_none(), "{}: {shares:?}", held.trace);
        }
    }

    #[test]
    fn a_hold_costs_no_cpu_and_wakes_as_its_calibration_says() {
        let costs = Calibration::committed().costs;
        let trace = Trace::periodic(970.0, Length::SHORT);
        let held = Held::new(&trace, &settings(), limits(&costs), &costs);
        let (free, park, spin) = (held.governed(0.0), &held.outcomes[0].1, held.outcomes.last());
        let spin = &spin.unwrap().1;
        let longer = free.response(0.5) - spin.response(0.5);
        assert!((longer - (HELD_WAKE - costs.poll / 2.0)).abs() < 2.0 * costs.poll, "{longer}");
        assert!(free.cpu() < park.cpu() && free.response(0.5) < park.response(0.5));
        assert!(free.held / free.elapsed > 0.98 && free.spin.abs() < f64::EPSILON);
        assert!((free.priced(1.0) - free.cpu() - free.held / free.elapsed).abs() < 1e-9);
        let met = free.hits + free.misses;
        assert_eq!((met, free.misses), (free.parks, 0));
    }

    #[test]
    fn each_policy_has_a_row_and_each_price_a_column_and_a_verdict() {
        let costs = Calibration::committed().costs;
        let traces = [Trace::periodic(100.0, Length::SHORT), Trace::bursts(Length::SHORT, 1)];
        let held = traces.map(|trace| Held::new(&trace, &settings(), limits(&costs), &costs));
        let table = table(&held, &PRICES);
        // At price 0 the governor is one of the silences.
        assert_eq!(table.rows.len(), 2 * (2 + PRICES.len() - 1 + SILENCES.len() + 1 + 1));
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        assert_eq!(table.columns.len(), 9 + PRICES.len());
        assert_eq!(claims(&held, &PRICES).len(), 2 * PRICES.len());
    }
}
