//! CPUs that are held: idle policies, Tokio and [unmodified programs](super::unmodified) at low to
//! high rates, and what the machine pays for each.

use std::path::Path;
use std::time::Duration;

use wakeful_load::internals::bench::Block;
use wakeful_load::internals::format;
use wakeful_load::internals::series::Figures;

use super::cases::{self, Case};
use super::contenders;
use super::loads::load;
use super::machine::{self, Pays};
use super::machine_watch::MachineWatch;
use super::nginx::NGINX;
use super::parts::{AWAKE, AWAKE_RATES, Extent};
use super::unmodified;
use crate::interleaved::{Failure, Measured};
use crate::lab::{Lab, LabError, Size};

/// With fewer answers than this there is no median. A block usually needs 200.
const FEWEST_ANSWERS: u64 = 30;

/// A server that answers less than this share of the requests cannot keep up with the rate. A stop
/// of the whole machine takes a smaller share.
const KEEPS_UP: f64 = 0.9;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// A server at a rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// The median response time. Unlike [`Figures::p50`], it may also come from a few answers.
    pub(super) p50: Option<f64>,
    pub(super) figures: Figures,
    pub(super) pays: Option<Pays>,
}

/// What is measured at each rate, in the order of [`AWAKE_RATES`].
pub(super) struct Plan(Vec<(Vec<Case>, usize)>);

impl Plan {
    /// Makes a plan, which is empty if the part is not wanted.
    pub(super) fn new(lab: &Lab<'_>, extent: &Extent, scratch: &Path) -> Result<Self, LabError> {
        let at = |rate: f64| {
            let is_slow = rate < 100.0;
            let is_wanted = lab.is_wanted(AWAKE) && !(is_slow && lab.size == Size::Quick);
            // A block of less than a minute does not have 200 answers at the lowest rate.
            let answers = if is_slow { 50.0 } else { 240.0 };
            let rounds = if is_slow { extent.field_rounds() } else { extent.rounds };
            let load = load(lab, rate, extent.block.max(Duration::from_secs_f64(answers / rate)))?;
            let all = contenders::held(lab).into_iter();
            let ours = all.map(|contender| Case::new(contender, &load));
            let others = unmodified::cases(&lab.probes, &lab.program, &load, scratch)?;
            let cases = ours.chain(others);
            Ok((if is_wanted { cases.collect() } else { Vec::new() }, rounds))
        };
        AWAKE_RATES.into_iter().map(at).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn expect(&self, lab: &mut Lab<'_>) {
        for (cases, rounds) in &self.0 {
            cases::expect(lab, cases, *rounds);
        }
    }

    pub(super) fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Measured<Held>>, LabError> {
        if lab.is_wanted(AWAKE) {
            lab.notes.push(machine::how_cpus_idle());
        }
        let at = |((cases, rounds), rate): (&(Vec<Case>, usize), f64)| {
            let part = format!("{AWAKE}, {}", format::short_rate(rate));
            cases::measure(lab, &part, cases, *rounds, |lab, case| Ok(watch(lab, case)), held)
        };
        self.0.iter().zip(AWAKE_RATES).map(at).collect()
    }
}

/// nginx accepts connections before it has workers, and the workers' CPU time has to be read.
fn watch(lab: &Lab<'_>, case: &Case) -> MachineWatch {
    let first_request = case.name.starts_with(NGINX).then_some(REQUEST);
    MachineWatch::new(lab.bench.cpu, first_request)
}

fn held(block: &Block, watch: MachineWatch) -> Result<Held, Failure> {
    let (recording, piled_up) = (&block.measurement.recording, block.measurement.piled_up);
    let answered = recording.answered.saturating_sub(piled_up);
    if !block.spoilt && (answered as f64) < KEEPS_UP * recording.offered as f64 {
        let offered = recording.offered;
        return Err(Failure::LeftOut(format!("it answered {answered} of {offered} requests")));
    }
    let has_median = recording.response.len() >= FEWEST_ANSWERS;
    let p50 = has_median.then(|| recording.response.value_at_quantile(0.5) as f64);
    Ok(Held { p50, figures: Figures::of(block), pays: watch.pays() })
}
