//! What a run measured, as `--json` prints it. This is the schema: version 1.
//!
//! Times are nanoseconds unless a name says otherwise. Fields are only ever added within a version.

use serde::{Deserialize, Serialize};

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

/// One server at one rate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// The server's name in the table.
    pub server: String,
    /// Requests a second asked for; `None` is closed loop.
    pub rate: Option<f64>,
    /// `poisson`, `constant`, `trace` or `closed`.
    pub schedule: String,
    /// The seed of the schedule.
    pub seed: u64,
    /// How many connections.
    pub connections: usize,
    /// Seconds measured, without the warm-up.
    pub seconds: f64,
    /// Requests due in the measured time.
    pub offered: u64,
    /// Requests of those that were answered as hoped for.
    pub answered: u64,
    /// Requests of those that failed: error answers, broken connections, time-outs.
    pub failed: u64,
    /// Requests of those that waited because every connection was at its limit.
    pub waited_for_connection: u64,
    /// Answers a second.
    pub throughput: f64,
    /// Done − intended. In a closed loop, done − sent.
    pub response: Percentiles,
    /// Done − sent.
    pub service: Percentiles,
    /// Sent − intended, without what the server is to blame for (waiting for a connection).
    pub send_lag: Percentiles,
    /// One entry for each of the requests that are told apart; none if there is but one.
    #[serde(default)]
    pub kinds: Vec<KindOfRequest>,
    /// The server's CPU over exactly the measured time, if its process is known.
    pub cpu: Option<Cpu>,
    /// Share of one CPU stolen by the hypervisor meanwhile, 0 to 1 for each CPU summed.
    pub steal: f64,
    /// Response times by interval, for the plot over time.
    pub timeline: Vec<Interval>,
    /// Valid or not, and why not.
    pub validity: Validity,
    /// How many blocks the figures are merged from.
    pub blocks: usize,
    /// How many blocks were spoilt by other programs and measured again.
    pub repeated: usize,
    /// How many of the blocks that count were spoilt as well, because the repeats were used up.
    #[serde(default)]
    pub spoilt: usize,
    /// Whether it was asked for more than it can do, to find that out: this is no failure, and its
    /// response times mean nothing.
    #[serde(default)]
    pub saturated: bool,
}

/// A distribution of times, in nanoseconds. A quantile with fewer than 100 samples beyond it is
/// absent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Percentiles {
    /// Samples.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Smallest.
    pub min: u64,
    /// Largest.
    pub max: u64,
    /// Median.
    pub p50: Option<u64>,
    /// 90 %.
    pub p90: Option<u64>,
    /// 99 %.
    pub p99: Option<u64>,
    /// 99.9 %.
    pub p999: Option<u64>,
    /// 99.99 %.
    pub p9999: Option<u64>,
    /// Points of the curve: quantile (0 to 1) and value, rising.
    pub curve: Vec<(f64, u64)>,
}

/// What a server's process used.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Cpu {
    /// Seconds in user mode.
    pub user: f64,
    /// Seconds in the kernel.
    pub system: f64,
    /// Seconds that its threads were runnable and waited for a CPU.
    pub run_queue_wait: f64,
    /// Switches because it slept.
    pub voluntary_switches: u64,
    /// Switches because something else was given its CPU.
    pub involuntary_switches: u64,
    /// (user + system) / measured seconds: 1 is a whole CPU.
    pub share: f64,
}

/// A slice of the measured time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Interval {
    /// Seconds since the measured time began.
    pub start: f64,
    /// Requests intended in this slice and answered.
    pub count: u64,
    /// Median response time.
    pub p50: u64,
    /// 99 %, by nearest rank, however few there are.
    pub p99: u64,
    /// Largest.
    pub max: u64,
}

/// What the requests of one kind took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KindOfRequest {
    /// The request.
    pub name: String,
    /// Its answers a second, those that never came included.
    pub throughput: f64,
    /// Done − intended. In a closed loop, done − sent.
    pub response: Percentiles,
}

/// Whether figures may be believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Validity {
    /// They may.
    Valid,
    /// They may not.
    Invalid {
        /// Why not, one sentence each.
        reasons: Vec<String>,
        /// The highest percentile that may be believed nevertheless: `p50` or `p90`. Only the
        /// generator was late, and not for as many requests.
        #[serde(default)]
        up_to: Option<String>,
    },
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
