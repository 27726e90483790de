//! Checks the model: it predicts what the real server does under loads that it was not calibrated
//! with.

use std::sync::Arc;
use std::time::Duration;

use wakeful::internals::GovernorLimits;
use wakeful_load::Schedule;
use wakeful_load::internals::format;
use wakeful_load::internals::results::{Cell, Claim, Column, Table, Unit, Verdict};
use wakeful_load::internals::statistics::median;

use crate::costs::Costs;
use crate::measure::{Laboratory, MeasureError, Measured};
use crate::policy::Policy;
use crate::replay::replay;
use crate::trace::{Length, Trace};

/// How far off a prediction may be, as a share.
pub const MOST: f64 = 0.15;

/// A figure as predicted and as measured.
#[derive(Debug, Clone, Copy)]
struct Pair {
    predicted: f64,
    measured: f64,
}

impl Pair {
    fn off(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

/// The result of the check.
#[derive(Debug)]
pub struct Checked {
    /// The figures.
    pub table: Table,
    /// A verdict for each trace.
    pub claims: Vec<Claim>,
}

/// Three traces of a few seconds: random gaps, on and off, and bursts.
fn traces(seconds: u64, seed: u64) -> [Trace; 3] {
    let length = Length { seconds, requests: usize::MAX };
    [
        Trace::poisson(1e4, length, seed),
        Trace::on_off("on/off 20 ms", 2e4, 2e7, 8e7, length, seed),
        Trace::bursts(length, seed),
    ]
}

/// Replays three traces, and has the real server answer them: parking, spinning and adapting. The
/// median of `rounds` rounds counts.
///
/// # Errors
///
/// When the server does not start or dies, or the user has ended the check.
pub fn check(
    laboratory: &mut Laboratory<'_>,
    costs: &Costs,
    limits: GovernorLimits,
    (rounds, seconds, seed): (usize, u64, u64),
) -> Result<Checked, MeasureError> {
    let policies = [Policy::Adaptive(limits), Policy::Window(0), Policy::Spin];
    let traces = traces(seconds, seed);
    let duration = Duration::from_secs(seconds);
    laboratory.expect(traces.len() * policies.len() * rounds, duration);
    let mut blocks = vec![Vec::new(); traces.len() * policies.len()];
    for _ in 0..rounds {
        for (index, blocks) in blocks.iter_mut().enumerate() {
            let (trace, policy) =
                (&traces[index / policies.len()], policies[index % policies.len()]);
            let schedule = Schedule::Trace(Arc::from(trace.arrivals.as_slice()));
            blocks.push(laboratory.measure(policy, schedule, duration, seed)?);
        }
    }
    let mut rows = Vec::new();
    let mut claims = Vec::new();
    for (trace, blocks) in traces.iter().zip(blocks.chunks(policies.len())) {
        let mut worst = (0.0_f64, String::new());
        for (policy, blocks) in policies.into_iter().zip(blocks) {
            let predicted = replay(&trace.arrivals, policy, costs);
            let of = |figure: fn(&Measured) -> f64| {
                median(&blocks.iter().map(figure).collect::<Vec<f64>>())
            };
            let p50 = Pair { predicted: predicted.response(0.5), measured: of(|block| block.p50) };
            let cpu = Pair { predicted: predicted.cpu(), measured: of(|block| block.cpu) };
            for (name, pair) in [("p50", p50), ("CPU", cpu)] {
                if pair.off().abs() > worst.0.abs() {
                    worst = (pair.off(), format!("{name} of {}", policy.name()));
                }
            }
            rows.push(row(&trace.name, &policy.name(), p50, cpu));
        }
        claims.push(Claim {
            claim: format!("{}: p50 and CPU are predicted within 15 %", trace.name),
            measured: format!("at most {} off, {}", format::percent(worst.0.abs()), worst.1),
            verdict: if worst.0.abs() <= MOST { Verdict::Holds } else { Verdict::DoesNotHold },
        });
    }
    let columns = [
        ("trace", Unit::Text),
        ("policy", Unit::Text),
        ("p50 predicted", Unit::Nanoseconds),
        ("measured", Unit::Nanoseconds),
        ("off by", Unit::Share),
        ("CPU predicted", Unit::Share),
        ("measured", Unit::Share),
        ("off by", Unit::Share),
    ];
    let table = Table {
        title: "The model against the server".to_owned(),
        note: String::new(),
        columns: columns.map(|(head, unit)| Column::new(head, unit)).to_vec(),
        rows,
    };
    Ok(Checked { table, claims })
}

fn row(trace: &str, policy: &str, p50: Pair, cpu: Pair) -> Vec<Cell> {
    let figures =
        [p50, cpu].into_iter().flat_map(|pair| [pair.predicted, pair.measured, pair.off()]);
    let words = [Cell::text(trace), Cell::text(policy)];
    words.into_iter().chain(figures.map(|figure| Cell::of(&[figure]))).collect()
}
