//! What an experiment is, and what it works with.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use wakeful_load::Run;
use wakeful_load::internals::bench::{Bench, BenchError};
use wakeful_load::internals::results::{Claim, Floor, Results, SCHEMA, Table, Tradeoff};
use wakeful_load::internals::{format, machine};

use crate::contender::Contender;
use crate::peers::{PeersError, Service};
use crate::probe::{Probe, ReadyProbe};

/// A public case, and the claims about it.
pub trait Experiment: Sync {
    /// Returns the name, as in `lab NAME`.
    fn name(&self) -> &'static str;
    /// Returns one line for `lab list`.
    fn about(&self) -> &'static str;
    /// Returns the public case and its published figures.
    fn story(&self) -> &'static str;
    /// Returns the claims, each with its bound.
    fn claims(&self) -> Vec<String>;
    /// Returns the service of the peers that the experiment loads. `None` if it measures no
    /// servers.
    fn service(&self) -> Option<Service> {
        None
    }
    /// Whether the experiment uses [`Lab::timer`].
    fn has_timer(&self) -> bool {
        false
    }
    /// Returns the parts of the experiment, if it uses [`Lab::parts`] and [`Lab::rounds`].
    fn parts(&self) -> &'static [&'static str] {
        &[]
    }
    /// Whether the experiment uses [`Lab::block`], as most experiments with parts do.
    fn has_blocks(&self) -> bool {
        !self.parts().is_empty()
    }
    /// Whether the experiment is about CPU against latency. Then that is drawn as well.
    fn has_frontier(&self) -> bool {
        false
    }
    /// Returns the probes that the experiment runs. The lab builds their programs.
    fn probes(&self) -> Vec<Probe> {
        Vec::new()
    }
    /// Runs the experiment. If the user ends it early, it reports what it has measured.
    ///
    /// # Errors
    /// Nothing could be measured.
    fn run(&self, lab: &mut Lab<'_>) -> Result<Results, LabError>;
}

/// How thorough an experiment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Takes minutes, and only the peers that need nothing but the Rust toolchain.
    Quick,
    /// Takes as long as the figures in the documentation need.
    Full,
}

/// What an experiment works with.
#[derive(Debug)]
pub struct Lab<'a> {
    /// Measures blocks.
    pub bench: Bench<'a>,
    /// How thorough the experiment is.
    pub size: Size,
    /// The program `wakeful`, whose services are measured.
    pub program: PathBuf,
    /// The peers that were built and are wanted, with the experiment's service.
    pub peers: Vec<Contender>,
    /// The experiment's probes that were built and are wanted.
    pub probes: Vec<ReadyProbe>,
    /// How many times probes were run.
    pub counted: ProbeRuns,
    /// What the reader has to know, such as which peers are missing, and why.
    pub notes: Vec<String>,
    /// The seed of the schedules.
    pub seed: u64,
    /// `late-wake`: the time until the loop's timer, if not that of the size.
    pub timer: Option<Duration>,
    /// The [parts](Experiment::parts) that are wanted. Empty stands for all.
    pub parts: Vec<String>,
    /// The number of rounds, if not that of the size.
    pub rounds: Option<usize>,
    /// The measured time of a block, if not that of the size.
    pub block: Option<Duration>,
}

/// How many times probes were run.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProbeRuns {
    /// The runs that count.
    pub kept: usize,
    /// The runs that other programs spoilt, and that were made again.
    pub repeated: usize,
    /// The runs that count although they were spoilt, because the repeats were used up.
    pub spoilt: usize,
}

/// What an experiment has found.
#[derive(Debug, Default)]
pub struct Findings {
    /// The time that the generator and the kernel themselves take, if the experiment loaded
    /// servers.
    pub floor: Option<Floor>,
    /// The servers under load.
    pub runs: Vec<Run>,
    /// Everything else that was measured.
    pub tables: Vec<Table>,
    /// What settings cost and bring.
    pub tradeoffs: Vec<Tradeoff>,
    /// The verdicts.
    pub claims: Vec<Claim>,
}

impl Lab<'_> {
    /// Whether a part of the experiment is to be measured.
    #[must_use]
    pub fn is_wanted(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted.as_str() == part)
    }

    /// Returns the results of an experiment.
    #[must_use]
    pub fn results(&self, experiment: &dyn Experiment, findings: Findings) -> Results {
        let Findings { floor, runs, tables, tradeoffs, claims } = findings;
        let mut notes = self.notes.clone();
        let share = format::percent(self.bench.limits.share);
        if !runs.is_empty() {
            let repeated: usize = runs.iter().map(|run| run.repeated).sum();
            let blocks: usize = runs.iter().map(|run| run.blocks).sum();
            notes.push(format!(
                "{blocks} blocks count. {repeated} more were thrown away and measured again, because other programs used more than {share} of a CPU meanwhile."
            ));
        }
        let ProbeRuns { kept, repeated, spoilt } = self.counted;
        if kept > 0 {
            notes.push(format!(
                "Probes and single calls that were run again, because other programs used more than {share} of a CPU: {repeated}. \
                 Of the {kept} that count, {spoilt} were disturbed, too."
            ));
        }
        if self.bench.is_interrupted() {
            notes.push("It was ended early; these are the rounds until then.".to_owned());
        }
        Results {
            schema: SCHEMA,
            title: format!("wakeful lab {}: {}", experiment.name(), experiment.about()),
            command: String::new(),
            machine: machine::describe(),
            floor,
            runs,
            comparisons: Vec::new(),
            tables,
            tradeoffs,
            claims,
            notes,
        }
    }
}

/// Returns a bench for tests, which do not test what other programs do.
#[cfg(test)]
pub(crate) fn bench_that_never_waits(interrupted: &std::sync::atomic::AtomicBool) -> Bench<'_> {
    use wakeful_load::internals::progress::Progress;

    let mut bench = Bench::on_this_machine(interrupted, Progress::silent()).unwrap();
    bench.limits.share = f64::INFINITY;
    bench.limits.settle = Duration::ZERO;
    bench
}

/// The reason why there are no results.
#[derive(Debug, Error)]
pub enum LabError {
    /// A block failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The peers cannot be built.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// There is no directory for what servers need besides their flags.
    #[error("cannot make a temporary directory: {0}")]
    Scratch(std::io::Error),
    /// None of the contenders could be measured.
    #[error("nothing was measured")]
    Nothing,
}
