//! One server at one rate: the offered and the answered requests, the percentiles, and whether they
//! are valid. Times are nanoseconds unless a name says otherwise.

use serde::{Deserialize, Serialize};

/// The results of one server at one rate.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Run {
    /// The server's name in the table.
    pub server: String,
    /// The planned requests per second; `None` for a closed loop.
    pub rate: Option<f64>,
    /// `poisson`, `constant`, `trace` or `closed`.
    pub schedule: String,
    /// The seed of the schedule.
    pub seed: u64,
    /// The number of connections.
    pub connections: usize,
    /// The measured time in seconds, without the warm-up.
    pub seconds: f64,
    /// Requests due in the measured time.
    pub offered: u64,
    /// Due requests with a successful answer.
    pub answered: u64,
    /// Due requests that failed: error answers, broken connections, timeouts. Connections on which
    /// the server broke the protocol while no request waited are counted here, too.
    pub failed: u64,
    /// Due requests that waited because all connections were at their limit.
    pub waited_for_connection: u64,
    /// Answers per second.
    pub throughput: f64,
    /// Done − intended. In a closed loop, done − sent.
    pub response: Percentiles,
    /// Done − sent.
    pub service: Percentiles,
    /// Sent − intended, minus the wait for a connection, which the server causes.
    pub send_lag: Percentiles,
    /// One entry for each kind of request. It is empty if there is only one kind.
    #[serde(default)]
    pub kinds: Vec<KindOfRequest>,
    /// The server's CPU use in exactly the measured time, if its process is known.
    pub cpu: Option<Cpu>,
    /// CPU time that the hypervisor took meanwhile, summed over all CPUs: 1 is one whole CPU.
    pub steal: f64,
    /// Response times by interval, for the plot over time.
    pub timeline: Vec<Interval>,
    /// Valid or not, and why not.
    pub validity: Validity,
    /// How many blocks the figures are merged from.
    pub blocks: usize,
    /// How many blocks other programs disturbed, so that they were measured again.
    pub repeated: usize,
    /// How many of the counted blocks were also disturbed, because the repeats were used up.
    #[serde(default)]
    pub spoilt: usize,
    /// Whether the server was deliberately given more load than it can handle, to measure its
    /// limit. This is not a failure, and its response times mean nothing.
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
    /// Points of the curve in ascending order: quantile (0 to 1) and value.
    pub curve: Vec<(f64, u64)>,
}

/// The CPU use of a server's process.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cpu {
    /// Seconds in user mode.
    pub user: f64,
    /// Seconds in the kernel.
    pub system: f64,
    /// Seconds during which its threads were runnable and waited for a CPU.
    pub run_queue_wait: f64,
    /// Context switches because a thread slept.
    pub voluntary_switches: u64,
    /// Context switches because another thread got its CPU.
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
    /// Answered requests that were due in this slice.
    pub count: u64,
    /// Median response time.
    pub p50: u64,
    /// 99th percentile, by nearest rank, even if there are few requests.
    pub p99: u64,
    /// Largest.
    pub max: u64,
}

/// The response times of one kind of request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KindOfRequest {
    /// The request.
    pub name: String,
    /// Its requests per second, including those without an answer.
    pub throughput: f64,
    /// Done − intended. In a closed loop, done − sent.
    pub response: Percentiles,
}

/// Whether figures are valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Validity {
    /// They are valid.
    Valid,
    /// They are not valid.
    Invalid {
        /// The reasons, one sentence each.
        reasons: Vec<String>,
        /// The highest percentile that is still valid: `p50` or `p90`. It is set if only the
        /// generator was late, and only for a few requests.
        #[serde(default)]
        up_to: Option<String>,
    },
}
