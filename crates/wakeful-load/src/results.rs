//! The results of a run, as `--json` prints them. This is version 1 of the schema.
//!
//! Times are nanoseconds unless a name says otherwise. Within a version, fields are only added.

mod run;

use serde::{Deserialize, Serialize};

pub use run::{Cpu, Interval, KindOfRequest, Percentiles, Run, Validity};

/// The version of this schema.
pub const SCHEMA: u32 = 1;

/// Everything that one command measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What the report is about, one line.
    pub title: String,
    /// The command line that printed it.
    pub command: String,
    /// Where and on what it was measured.
    pub machine: Machine,
    /// What the generator itself and the kernel take, against a server that does nothing.
    pub floor: Option<Floor>,
    /// One entry for each server and rate that was measured, in the order of measurement.
    pub runs: Vec<Run>,
    /// Paired comparisons, if any were asked for.
    pub comparisons: Vec<Comparison>,
    /// What an experiment measured that is not runs of the generator.
    #[serde(default)]
    pub tables: Vec<Table>,
    /// What a setting of an experiment costs and brings.
    #[serde(default)]
    pub tradeoffs: Vec<Tradeoff>,
    /// Verdicts of an experiment, if it was one.
    pub claims: Vec<Claim>,
    /// What the reader has to know besides: blocks repeated, peers left out and why.
    pub notes: Vec<String>,
}

/// Where and on what it was measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Machine {
    /// `uname -r`.
    pub kernel: String,
    /// The CPU's model.
    pub cpu: String,
    /// How many CPUs are online.
    pub cpus: usize,
    /// The hypervisor, if there is one.
    pub hypervisor: Option<String>,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Frequency governor, or that there is none.
    pub governor: String,
    /// Vulnerabilities and what the kernel does about them: `name: state`.
    pub mitigations: Vec<String>,
    /// The boot's command line.
    pub kernel_command_line: String,
    /// This program's version.
    pub version: String,
    /// Seconds since 1970 at the start.
    pub started_unix: u64,
}

/// What the generator and the kernel take by themselves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Floor {
    /// Requests a second offered.
    pub rate: f64,
    /// Response time against a null server that spins on the server's CPU.
    pub response: Percentiles,
    /// Send lag in the same run.
    pub send_lag: Percentiles,
    /// What a thread on the generator's CPU that only reads the clock is kept from it.
    #[serde(default)]
    pub gaps: Option<Gaps>,
    /// Valid or not: a floor that was disturbed is none.
    pub validity: Validity,
}

/// What a thread that only reads the clock is kept from its CPU: by interrupts, other threads and
/// the hypervisor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gaps {
    /// Gaps of more than 10 µs between two readings, a second.
    pub over_10us_a_second: f64,
    /// The share of the time that was spent in those, 0 to 1.
    pub lost: f64,
    /// The longest.
    pub longest: u64,
    /// How late, at the 99th percentile, is what is due at a random time: no generator on this CPU
    /// can do better.
    pub lag_p99: u64,
}

/// A against B, in interleaved pairs of blocks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    /// The first server's name.
    pub a: String,
    /// The second server's name.
    pub b: String,
    /// Requests a second; `None` is closed loop.
    pub rate: Option<f64>,
    /// How many pairs.
    pub pairs: usize,
    /// One entry for each figure compared.
    pub metrics: Vec<Metric>,
}

/// One figure of a comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Metric {
    /// `p50`, `p90`, `p99`, `p99.9`, `cpu` or `throughput`.
    pub name: String,
    /// Median of A's blocks; nanoseconds, CPU seconds a request, or requests a second.
    pub a: f64,
    /// Median of B's blocks.
    pub b: f64,
    /// Median of the pairs' B / A.
    pub ratio: f64,
    /// The bootstrap interval of that ratio.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The same for A against A: the noise floor.
    pub noise: Option<(f64, f64, f64)>,
    /// `higher`, `lower` or `no difference`: what may be claimed of B. `cannot tell` with too few
    /// pairs.
    pub verdict: String,
    /// Whether A's or B's figure is under twice the floor's: more than half of it is not the
    /// server's, so that the ratio says less than it seems to.
    #[serde(default)]
    pub near_floor: bool,
}

/// Figures that are not runs of the generator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What it shows, one line.
    pub title: String,
    /// What the reader has to know to read it; may be empty.
    pub note: String,
    /// One entry for each column. The first one names the row.
    pub columns: Vec<Column>,
    /// The rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column's head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// What stands above it.
    pub head: String,
    /// What its numbers are.
    pub unit: Unit,
}

impl Column {
    /// A column.
    #[must_use]
    pub fn new(head: &str, unit: Unit) -> Self {
        Self { head: head.to_owned(), unit }
    }
}

/// What a column's numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// There are none: words.
    Text,
    /// Times.
    Nanoseconds,
    /// How many.
    Count,
    /// How many a second.
    PerSecond,
    /// Shares of a whole, 0 to 1.
    Share,
    /// Anything else that the head explains; ratios.
    Number,
}

/// What stands in a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A figure, in its column's unit.
    Figure {
        /// The figure; the median, if it was measured more than once.
        value: f64,
        /// The lowest of those that were measured, if there were several.
        low: Option<f64>,
        /// The highest.
        high: Option<f64>,
    },
    /// It is not known.
    Absent,
}

impl Cell {
    /// Words.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// The median of what was measured, with the lowest and the highest. What is not finite is left
    /// out; of nothing, there is [`Cell::Absent`].
    #[must_use]
    pub fn of(measured: &[f64]) -> Self {
        let mut finite: Vec<f64> =
            measured.iter().copied().filter(|value| value.is_finite()).collect();
        finite.sort_by(f64::total_cmp);
        match finite[..] {
            [] => Self::Absent,
            [value] => Self::Figure { value, low: None, high: None },
            [low, .., high] => {
                let value = crate::statistics::median(&finite);
                Self::Figure { value, low: Some(low), high: Some(high) }
            }
        }
    }
}

/// What a setting costs and brings: a point for each of its values, and what it is compared with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tradeoff {
    /// For a file's name.
    pub name: String,
    /// What it shows, one line.
    pub title: String,
    /// The setting's values, in their order.
    pub line: Vec<TradeoffPoint>,
    /// Others at the same rate.
    pub others: Vec<TradeoffPoint>,
}

/// A server's median response time and what it used for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TradeoffPoint {
    /// What it is.
    pub label: String,
    /// The share of a CPU, 1 for a whole one.
    pub cpu: f64,
    /// Median response time, nanoseconds.
    pub p50: f64,
}

/// What an experiment claims, and what came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claim {
    /// The claim, one sentence.
    pub claim: String,
    /// What was measured, in words and figures.
    pub measured: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// What came of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The claim holds here.
    Holds,
    /// It does not.
    DoesNotHold,
    /// The machine is too noisy or too small to tell, or a peer is missing.
    CannotTell,
}
