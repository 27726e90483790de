//! What an experiment is, and what it gets to work with.

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

/// A public case, and what is claimed about it.
pub trait Experiment: Sync {
    /// As in `lab NAME`.
    fn name(&self) -> &'static str;
    /// One line, for `lab list`.
    fn about(&self) -> &'static str;
    /// The public case and its published figures.
    fn story(&self) -> &'static str;
    /// What is claimed, each with its bound.
    fn claims(&self) -> Vec<String>;
    /// The service of the peers that it loads; nothing if it measures no servers.
    fn service(&self) -> Option<Service> {
        None
    }
    /// Whether [`Lab::timer`] means something to it.
    fn has_timer(&self) -> bool {
        false
    }
    /// Its parts, if [`Lab::parts`] and [`Lab::rounds`] mean something to it.
    fn parts(&self) -> &'static [&'static str] {
        &[]
    }
    /// Whether [`Lab::block`] means something to it, as to most that have parts.
    fn has_blocks(&self) -> bool {
        !self.parts().is_empty()
    }
    /// Whether CPU against latency is what it is about: then that is drawn as well.
    fn has_frontier(&self) -> bool {
        false
    }
    /// The probes that it runs; the lab builds their programs.
    fn probes(&self) -> Vec<Probe> {
        Vec::new()
    }
    /// Runs it. What the user ended early is reported as far as it came.
    ///
    /// # Errors
    /// Nothing could be measured.
    fn run(&self, lab: &mut Lab<'_>) -> Result<Results, LabError>;
}

/// How thorough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Minutes, and the peers that need nothing but the Rust toolchain.
    Quick,
    /// As long as the figures of the documentation need.
    Full,
}

/// What an experiment gets to work with.
#[derive(Debug)]
pub struct Lab<'a> {
    /// Measures blocks.
    pub bench: Bench<'a>,
    /// How thorough.
    pub size: Size,
    /// The program `wakeful`, whose services are measured.
    pub program: PathBuf,
    /// The peers that were built and are wanted, with the experiment's service.
    pub peers: Vec<Contender>,
    /// The experiment's probes that were built and are wanted.
    pub probes: Vec<ReadyProbe>,
    /// How often probes were run.
    pub counted: ProbeRuns,
    /// What the reader has to know: peers that are missing, and why.
    pub notes: Vec<String>,
    /// What seeds the schedules.
    pub seed: u64,
    /// `late-wake`: how far away the loop's timer is, if not as far as the size says.
    pub timer: Option<Duration>,
    /// Which [parts](Experiment::parts) are wanted; none stands for all.
    pub parts: Vec<String>,
    /// How many rounds, if not as many as the size says.
    pub rounds: Option<usize>,
    /// The measured time of a block, if not as the size says.
    pub block: Option<Duration>,
}

/// How often probes were run.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProbeRuns {
    /// Runs that count.
    pub kept: usize,
    /// Runs that other programs spoilt, and that were made again.
    pub repeated: usize,
    /// Runs among those that count that were spoilt nevertheless, because repeats were used up.
    pub spoilt: usize,
}

/// What an experiment found.
#[derive(Debug, Default)]
pub struct Findings {
    /// What the generator and the kernel take by themselves, if it loaded servers.
    pub floor: Option<Floor>,
    /// Servers under load.
    pub runs: Vec<Run>,
    /// Everything else.
    pub tables: Vec<Table>,
    /// What settings cost and bring.
    pub tradeoffs: Vec<Tradeoff>,
    /// The verdicts.
    pub claims: Vec<Claim>,
}

impl Lab<'_> {
    /// Whether that part of the experiment is to be measured.
    #[must_use]
    pub fn is_wanted(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted.as_str() == part)
    }

    /// The results of an experiment.
    #[must_use]
    pub fn results(&self, experiment: &dyn Experiment, findings: Findings) -> Results {
        let Findings { floor, runs, tables, tradeoffs, claims } = findings;
        let mut notes = self.notes.clone();
        let share = format::percent(self.bench.limits.share);
        if !runs.is_empty() {
            let repeated: usize = runs.iter().map(|run| run.repeated).sum();
            let blocks: usize = runs.iter().map(|run| run.blocks).sum();
            notes.push(format!(
                "Blocks that were measured again, because other programs used more than {share} of a CPU: {repeated}. Blocks that count: {blocks}."
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

/// Why there are no results.
#[derive(Debug, Error)]
pub enum LabError {
    /// A block failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The peers cannot be built.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// There is no place for what servers need besides their flags.
    #[error("cannot make a temporary directory: {0}")]
    Scratch(std::io::Error),
    /// None of the contenders could be measured.
    #[error("nothing was measured")]
    Nothing,
}
