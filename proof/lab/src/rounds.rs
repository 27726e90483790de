//! Many contenders under many loads, interleaved. Each round measures every pair of a contender and
//! a load once, in the opposite order of the round before, so that slow drifts favour no contender.
//! Figures of the same round are compared with each other.

use std::collections::BTreeMap;

use wakeful_load::Run;
use wakeful_load::internals::bench::{Bench, BenchError, Block, Load};
use wakeful_load::internals::series::{Figures, Series, Slices};

use crate::contender::Contender;

/// What was measured: for each contender and load, by index, the blocks in the order of the rounds.
#[derive(Debug, Default)]
pub struct Rounds {
    cells: BTreeMap<(usize, usize), Series>,
    /// The contenders that failed, and the reasons. They were not measured again.
    pub failed: BTreeMap<usize, String>,
}

/// Tells the user how long [`measure`] will take, before an experiment's first part.
pub fn expect(bench: &mut Bench<'_>, contenders: usize, loads: &[Load], rounds: usize) {
    for load in loads {
        bench.progress.expect(rounds * contenders, bench.expected_time(load));
    }
}

/// Measures `rounds` rounds. If the user ends the measurement, returns what there is so far.
///
/// # Errors
/// The kernel or the machine is at fault. Contenders that are at fault are left out from then on.
pub fn measure(
    bench: &mut Bench<'_>,
    contenders: &[Contender],
    loads: &[Load],
    rounds: usize,
) -> Result<Rounds, BenchError> {
    let mut measured = Rounds::default();
    let own_cpus = bench.server_cpus.clone();
    let mut order: Vec<(usize, usize)> = (0..loads.len())
        .flat_map(|load| (0..contenders.len()).map(move |one| (one, load)))
        .collect();
    for round in 0..rounds {
        for &(one, load) in &order {
            if bench.is_interrupted() {
                return Ok(measured);
            }
            if measured.failed.contains_key(&one) {
                bench.progress.end();
                continue;
            }
            let contender = &contenders[one];
            bench.server_cpus = contender.cpus.of(bench);
            let mut load_now = loads[load].clone();
            let seed = load_now.plan.get_seed().wrapping_add(round as u64);
            load_now.plan = load_now.plan.seed(seed);
            let label = format!(
                "round {} of {rounds}: {} {}",
                round + 1,
                contender.name,
                load_now.plan.get_schedule()
            );
            let outcome = bench.block(&contender.server, &load_now, &label);
            bench.server_cpus.clone_from(&own_cpus);
            match outcome {
                Ok(block) if block.measurement.interrupted => return Ok(measured),
                Ok(mut block) => {
                    block.measurement.recording.forget_intervals();
                    measured.keep((one, load), &contender.name, block);
                }
                Err(error) if error.is_interrupted() => return Ok(measured),
                Err(error @ BenchError::Kernel { .. }) => return Err(error),
                Err(error) => {
                    bench.progress.say(&format!("{} is left out: {error}", contender.name));
                    measured.failed.insert(one, error.to_string());
                }
            }
        }
        order.reverse();
    }
    Ok(measured)
}

impl Rounds {
    fn keep(&mut self, cell: (usize, usize), name: &str, block: Block) {
        match self.cells.get_mut(&cell) {
            Some(series) => series.add(block),
            None => drop(self.cells.insert(cell, Series::new(name, block, Slices::Figures))),
        }
    }

    /// Returns the figures of one contender under one load, round by round. Empty if it was not
    /// measured, and for each load if it failed.
    #[must_use]
    pub fn figures(&self, contender: usize, load: usize) -> &[Figures] {
        let cell = self.cells.get(&(contender, load));
        cell.filter(|_| !self.failed.contains_key(&contender)).map_or(&[], Series::figures)
    }

    /// Returns a line for each contender and load, contender by contender.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        self.cells.values().map(Series::run).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use wakeful_load::internals::null_server::{NullServerThread, Slowness};
    use wakeful_load::internals::servers::ServerSpec;
    use wakeful_load::{Plan, Protocol, Requests, Template};

    use super::*;
    use crate::contender::Cpus;
    use crate::lab::bench_that_never_waits;

    #[test]
    fn what_was_measured_before_a_failure_does_not_count() {
        let interrupted = AtomicBool::new(false);
        let mut bench = bench_that_never_waits(&interrupted);
        let server = NullServerThread::start(None, Slowness::default()).unwrap();
        let (name, target) = ("a".to_owned(), server.target().to_string());
        let requests = Requests::new(Protocol::Frames, &Template::of_size(1)).unwrap();
        let plan = Plan::new(server.target().clone()).requests(requests).connections(1);
        let plan = plan.rate(1e3).warm_up(Duration::ZERO).duration(Duration::from_millis(100));
        let load = Load { plan, slow_clients: 0 };
        let contender = Contender {
            name: name.clone(),
            server: ServerSpec::Running { name, target },
            cpus: Cpus::All,
        };
        let mut measured = measure(&mut bench, &[contender], &[load], 2).unwrap();
        assert_eq!(measured.figures(0, 0).len(), 2, "{:?}", measured.failed);
        // It fails in the third round.
        measured.failed.insert(0, "it died".to_owned());
        assert!(measured.figures(0, 0).is_empty());
    }
}
