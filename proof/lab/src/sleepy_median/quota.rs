//! Servers in a control group with a CPU quota: how often they are throttled between their start
//! and the end of the measured time.

use wakeful_load::internals::bench::{Companion, Load, Undisturbed};
use wakeful_load::internals::series::Figures;

use super::cgroup::Quota;
use crate::contender::{Contender, Cpus};
use crate::interleaved::{self, Failure, Measured};
use crate::lab::{Lab, LabError};

/// The quota, as a share of a CPU.
const SHARE: f64 = 0.2;

/// A server under a quota.
#[derive(Debug, Clone, Copy)]
pub(super) struct Throttled {
    pub(super) figures: Figures,
    /// The number of periods of 100 ms in which the server was throttled.
    pub(super) periods: f64,
    /// The number of periods in which the server wanted to run.
    pub(super) of: f64,
}

/// Tells the user how long the part will take.
pub(super) fn expect(lab: &mut Lab<'_>, contenders: &[Contender], load: &Load, rounds: usize) {
    let each = lab.bench.expected_time(load);
    lab.bench.progress.expect(rounds * contenders.len(), each);
}

/// Measures each contender in its own group.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    part: &str,
    contenders: &[Contender],
    load: &Load,
    rounds: usize,
) -> Result<Measured<Throttled>, LabError> {
    let names: Vec<_> = contenders.iter().map(|one| one.name.clone()).collect();
    interleaved::measure(lab, part, &names, rounds, |lab, one, label| {
        // A block that is measured again must not count the periods of the previous attempt.
        let repeats = std::mem::take(&mut lab.bench.most_repeats);
        let own_cpus = lab.bench.server_cpus.clone();
        lab.bench.server_cpus = Cpus::One.of(&lab.bench);
        let outcome = throttled(lab, &contenders[one], load, label);
        (lab.bench.server_cpus, lab.bench.most_repeats) = (own_cpus, repeats);
        outcome
    })
}

fn throttled(
    lab: &mut Lab<'_>,
    contender: &Contender,
    load: &Load,
    label: &str,
) -> Result<Undisturbed<Throttled>, Failure> {
    let left_out = |error: std::io::Error| Failure::LeftOut(error.to_string());
    let mut group = Group { quota: Quota::new(SHARE).map_err(left_out)?, counted: None };
    let server = group.quota.around(&contender.server);
    let block = lab.bench.block_beside(&server, load, label, &mut group)?;
    if block.measurement.interrupted {
        return Err(Failure::Interrupted);
    }
    let counted =
        group.counted.ok_or_else(|| Failure::LeftOut("the kernel does not say".to_owned()));
    let (periods, of) = counted?;
    let figures = Figures::of(&block);
    let value = Throttled { figures, periods: periods as f64, of: of as f64 };
    Ok(Undisturbed { value, repeated: block.repeated, spoilt: block.spoilt })
}

struct Group {
    quota: Quota,
    counted: Option<(u64, u64)>,
}

impl Companion for Group {
    fn window_ended(&mut self) {
        self.counted = self.quota.throttled().ok();
    }
}
