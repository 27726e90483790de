//! The direct echo: every policy and every peer at five rates. The ones that claims name are
//! measured in more rounds than the others, in a group of their own.

use wakeful_load::Run;
use wakeful_load::internals::bench::Load;
use wakeful_load::internals::floor;
use wakeful_load::internals::results::Floor;
use wakeful_load::internals::series::Figures;

use super::contenders;
use super::loads::{BYTES, load};
use super::parts::Extent;
use crate::contender::Contender;
use crate::interleaved::Measured;
use crate::lab::{Lab, LabError};
use crate::rounds::{self, Rounds};

/// The requests per second.
pub(super) const RATES: [f64; 5] = [1e3, 1e4, 5e4, 1e5, 2.6e5];
/// The indices of the rates that claims are about.
pub(super) const AT_10K: usize = 1;
pub(super) const AT_50K: usize = 2;
pub(super) const AT_100K: usize = 3;

/// A server that answers less than this share of the highest rate is saturated.
const KEEPS_UP: f64 = 0.995;

/// What is measured, and in how many rounds.
pub(super) struct Plan {
    loads: Vec<Load>,
    /// The contenders that claims name, and the others.
    groups: [(Vec<Contender>, usize); 2],
}

/// What was measured.
#[derive(Default)]
pub(super) struct Rates {
    pub(super) floor: Option<Floor>,
    pub(super) runs: Vec<Run>,
    /// The figures of the contenders that claims name, by rate.
    pub(super) judged: Vec<Measured<Figures>>,
}

impl Plan {
    pub(super) fn new(lab: &Lab<'_>, extent: &Extent) -> Result<Self, LabError> {
        let of = |rate| load(lab, rate, extent.block);
        Ok(Self {
            loads: RATES.into_iter().map(of).collect::<Result<_, _>>()?,
            groups: [
                (contenders::judged(lab), extent.rounds),
                (contenders::field(lab), extent.field_rounds()),
            ],
        })
    }

    pub(super) fn expect(&self, lab: &mut Lab<'_>) {
        floor::expect(&mut lab.bench, &self.loads[AT_10K]);
        for (contenders, rounds) in &self.groups {
            rounds::expect(&mut lab.bench, contenders.len(), &self.loads, *rounds);
        }
    }

    pub(super) fn measure(&self, lab: &mut Lab<'_>) -> Result<Rates, LabError> {
        let floor = floor::measure(&mut lab.bench, &self.loads[AT_10K], BYTES).ok();
        let mut rates = Rates { floor, ..Rates::default() };
        for (contenders, rounds) in &self.groups {
            let measured = rounds::measure(&mut lab.bench, contenders, &self.loads, *rounds)?;
            for (index, why) in &measured.failed {
                lab.notes.push(format!("{} was left out: {why}", contenders[*index].name));
            }
            rates.runs.extend(measured.runs().into_iter().map(marked));
            if rates.judged.is_empty() {
                rates.judged =
                    (0..RATES.len()).map(|load| at(&measured, contenders, load)).collect();
            }
        }
        Ok(rates)
    }
}

fn at(measured: &Rounds, contenders: &[Contender], load: usize) -> Measured<Figures> {
    let of = |(index, contender): (usize, &Contender)| {
        (contender.name.clone(), measured.figures(index, load).to_vec())
    };
    let all: Vec<_> = contenders.iter().enumerate().map(of).collect();
    Measured::canned(all.iter().map(|(name, figures)| (name.as_str(), figures.clone())).collect())
}

/// Marks a run that is saturated. The highest rate is more than some servers can handle, which is
/// not a failure. If other programs had the CPU, it is not known whether the server is saturated.
fn marked(mut run: Run) -> Run {
    let is_highest = run.rate == RATES.last().copied();
    let falls_short = run.rate.is_some_and(|rate| run.throughput < KEEPS_UP * rate);
    run.saturated = is_highest && falls_short && run.spoilt == 0;
    run
}
