//! One server at one rate: the offered and the answered requests, the percentiles, and whether they
//! are valid. Times are nanoseconds unless a name says otherwise.

use serde::{Deserialize, Serialize};

/// The results of one server at one rate. Times are in nanoseconds, unless a field says otherwise.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Run {
    /// The server's name in the table.
    pub server: String,
    /// The planned requests per second. `None` for a closed loop.
    pub rate: Option<f64>,
    /// The schedule: `poisson`, `constant`, `trace` or `closed`.
    pub schedule: String,
    /// The seed of the schedule.
    pub seed: u64,
    /// The number of connections.
    pub connections: usize,
    /// The measured time in seconds, without the warm-up.
    pub seconds: f64,
    /// The number of requests that were due in the measured time.
    pub offered: u64,
    /// The number of due requests with a successful answer.
    pub answered: u64,
    /// The number of due requests that failed: error answers, broken connections, timeouts.
    /// Connections on which the server broke the protocol while no request waited are counted here,
    /// too.
    pub failed: u64,
    /// The number of due requests that waited because all connections were at their limit.
    pub waited_for_connection: u64,
    /// Successful answers per second of the measured time, whenever their requests were due.
    pub throughput: f64,
    /// Done − intended. In a closed loop, done − sent.
    pub response: Percentiles,
    /// Done − sent.
    pub service: Percentiles,
    /// How late the generator was: sent − intended. If all connections were at their limit when the
    /// generator came to a request, only the time until then counts.
    pub send_lag: Percentiles,
    /// One entry for each kind of request. The list is empty if there is only one kind.
    #[serde(default)]
    pub kinds: Vec<KindOfRequest>,
    /// The server's CPU use in exactly the measured time, if its process is known.
    pub cpu: Option<Cpu>,
    /// The share of CPU time that the hypervisor took in the measured time, summed over all CPUs: 1
    /// is one whole CPU.
    pub steal: f64,
    /// Response times by interval, for the plot over time.
    pub timeline: Vec<Interval>,
    /// Whether the figures are valid, and if not, why.
    pub validity: Validity,
    /// The number of blocks (separate runs) from which the figures are merged.
    pub blocks: usize,
    /// How many blocks were measured again because other programs disturbed them.
    pub repeated: usize,
    /// How many disturbed blocks are among the merged ones, because no more repeats were allowed.
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
    /// The number of samples.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
    /// The median.
    pub p50: Option<u64>,
    /// The 90th percentile.
    pub p90: Option<u64>,
    /// The 99th percentile.
    pub p99: Option<u64>,
    /// The 99.9th percentile.
    pub p999: Option<u64>,
    /// The 99.99th percentile.
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
    /// Seconds during which the server's threads were runnable and waited for a CPU.
    pub run_queue_wait: f64,
    /// Context switches because a thread slept.
    pub voluntary_switches: u64,
    /// Context switches because another thread got its CPU.
    pub involuntary_switches: u64,
    /// (user + system) / measured seconds: 1 is one whole CPU.
    pub share: f64,
}

/// A slice of the measured time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Interval {
    /// Seconds since the measured time began.
    pub start: f64,
    /// The number of requests that were due in this slice and were answered, and of those that were
    /// still unanswered when the run gave up.
    pub count: u64,
    /// The median response time.
    pub p50: u64,
    /// The 99th percentile by nearest rank, even if there are few requests.
    pub p99: u64,
    /// The largest value.
    pub max: u64,
}

/// The response times of one kind of request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KindOfRequest {
    /// The request.
    pub name: String,
    /// The number of requests of this kind per second, including those without an answer.
    pub throughput: f64,
    /// Done − intended. In a closed loop, done − sent.
    pub response: Percentiles,
}

/// Whether the figures of a measurement are valid.
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
