//! One server at one rate: what was offered and answered, the percentiles, and whether they may be
//! believed.
//!
//! Times are nanoseconds unless a name says otherwise.

use serde::{Deserialize, Serialize};

/// One server at one rate.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
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
