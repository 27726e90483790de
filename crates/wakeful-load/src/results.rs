//! The results of a run, as `--json` prints them. This is version 1 of the schema.
//!
//! Times are in nanoseconds unless a name says otherwise. Within a version, fields are only added.

mod run;

use serde::{Deserialize, Serialize};

pub use run::{Cpu, Interval, KindOfRequest, Percentiles, Run, Validity};

/// The version of this schema.
pub const SCHEMA: u32 = 1;

/// Everything that one command has measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// The version of the schema: [`SCHEMA`].
    pub schema: u32,
    /// What the report is about, in one line.
    pub title: String,
    /// The command line that printed the results.
    pub command: String,
    /// The machine on which the results were measured.
    pub machine: Machine,
    /// The time that the generator and the kernel themselves take, against a server that does
    /// nothing.
    pub floor: Option<Floor>,
    /// One entry for each server and rate, in the order of measurement.
    pub runs: Vec<Run>,
    /// Paired comparisons, if any were requested.
    pub comparisons: Vec<Comparison>,
    /// What an experiment measured apart from runs of the generator.
    #[serde(default)]
    pub tables: Vec<Table>,
    /// What settings of an experiment cost and bring.
    #[serde(default)]
    pub tradeoffs: Vec<Tradeoff>,
    /// The verdicts of an experiment, if the command was one.
    pub claims: Vec<Claim>,
    /// Further notes for the reader, such as repeated blocks, and peers that were left out and why.
    pub notes: Vec<String>,
}

/// The machine on which something was measured, and its settings.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The release of the kernel, as `uname -r` prints it.
    pub kernel: String,
    /// The model of the CPU.
    pub cpu: String,
    /// The number of CPUs that are online.
    pub cpus: usize,
    /// The hypervisor, if there is one.
    pub hypervisor: Option<String>,
    /// The memory in MiB.
    pub memory_mib: u64,
    /// The frequency governor, or `none`.
    pub governor: String,
    /// The vulnerabilities, and what the kernel does about them, as `name: state`.
    pub mitigations: Vec<String>,
    /// The kernel's command line.
    pub kernel_command_line: String,
    /// The version of this program.
    pub version: String,
    /// The time of the start, in seconds since 1970.
    pub started_unix: u64,
}

/// The time that the generator and the kernel themselves take.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Floor {
    /// The offered requests per second.
    pub rate: f64,
    /// The response time against a null server that spins on the server's CPU.
    pub response: Percentiles,
    /// The send lag in the same run.
    pub send_lag: Percentiles,
    /// The gaps in the time of a thread on the generator's CPU that only reads the clock.
    #[serde(default)]
    pub gaps: Option<Gaps>,
    /// Whether the floor is valid. A floor that was disturbed is not.
    pub validity: Validity,
}

/// The gaps in the CPU time of a thread that only reads the clock. Interrupts, other threads and
/// the hypervisor cause them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gaps {
    /// The number of gaps per second of more than 10 µs between two readings.
    pub over_10us_a_second: f64,
    /// The share of the time that those gaps took, from 0 to 1.
    pub lost: f64,
    /// The longest gap.
    pub longest: u64,
    /// The 99th percentile of the delay of work that is due at a random time. No generator on this
    /// CPU can do better.
    pub lag_p99: u64,
}

/// A comparison of A with B, in interleaved pairs of blocks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    /// The name of the first server.
    pub a: String,
    /// The name of the second server.
    pub b: String,
    /// The planned requests per second. `None` for a closed loop.
    pub rate: Option<f64>,
    /// The number of pairs.
    pub pairs: usize,
    /// One entry for each figure that is compared.
    pub metrics: Vec<Metric>,
}

/// One figure of a comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Metric {
    /// `p50`, `p90`, `p99`, `p99.9`, `cpu` or `throughput`.
    pub name: String,
    /// The median of A's blocks, in nanoseconds, CPU seconds per request, or requests per second.
    pub a: f64,
    /// The median of B's blocks, in the same unit.
    pub b: f64,
    /// The median of the ratios B / A of the pairs.
    pub ratio: f64,
    /// The lower end of the bootstrap interval of the ratio.
    pub low: f64,
    /// The upper end of that interval.
    pub high: f64,
    /// The ratio and the ends of its interval for A against A, which show the noise.
    pub noise: Option<(f64, f64, f64)>,
    /// What can be claimed of B: `higher`, `lower` or `no difference`, or `cannot tell` if there
    /// are too few pairs.
    pub verdict: String,
    /// Whether A's or B's figure is less than twice the floor's. More than half of such a figure is
    /// not the server's, so the ratio says less than it seems to.
    #[serde(default)]
    pub near_floor: bool,
}

/// Figures that are not runs of the generator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What the table shows, in one line.
    pub title: String,
    /// A note that explains the table. It may be empty.
    pub note: String,
    /// One entry for each column. The first column names the row.
    pub columns: Vec<Column>,
    /// The rows. Each has a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// The head of a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// The text above the column.
    pub head: String,
    /// The unit of the column's numbers.
    pub unit: Unit,
}

impl Column {
    /// Makes a column.
    #[must_use]
    pub fn new(head: &str, unit: Unit) -> Self {
        Self { head: head.to_owned(), unit }
    }
}

/// The unit of a column's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Words, not numbers.
    Text,
    /// Times.
    Nanoseconds,
    /// Counts.
    Count,
    /// Counts per second.
    PerSecond,
    /// Shares of a whole, from 0 to 1.
    Share,
    /// Ratios, and anything else that the head explains.
    Number,
}

/// The content of a cell of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A figure in its column's unit.
    Figure {
        /// The figure. If it was measured more than once, this is the median.
        value: f64,
        /// The lowest measured figure, if there are several.
        low: Option<f64>,
        /// The highest measured figure, if there are several.
        high: Option<f64>,
    },
    /// An unknown figure.
    Absent,
}

impl Cell {
    /// Makes a cell of words.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Makes a cell of the median of what was measured, with the lowest and the highest figure.
    /// Figures that are not finite are left out. Without any figure, this is [`Cell::Absent`].
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

/// What a setting costs and brings: a point for each of its values, and points to compare it with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tradeoff {
    /// The name, which is used for the name of a file.
    pub name: String,
    /// What the plot shows, in one line.
    pub title: String,
    /// The values of the setting, in their order.
    pub line: Vec<TradeoffPoint>,
    /// Other servers at the same rate.
    pub others: Vec<TradeoffPoint>,
}

/// The median response time of a server, and the CPU time that it used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TradeoffPoint {
    /// The name of the point.
    pub label: String,
    /// The share of a CPU. 1 is one whole CPU.
    pub cpu: f64,
    /// The median response time in nanoseconds.
    pub p50: f64,
}

/// A claim of an experiment, and its verdict.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claim {
    /// The claim, in one sentence.
    pub claim: String,
    /// What was measured, in words and figures.
    pub measured: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdict on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The claim holds on this machine.
    Holds,
    /// The claim does not hold.
    DoesNotHold,
    /// The machine is too noisy or too small to tell, or a peer is missing.
    CannotTell,
}
