//! The result of a run, and what a running run asks its caller.

use std::collections::BTreeMap;
use std::io;

use thiserror::Error;

use super::plan::Plan;
use crate::recorder::Recording;

/// Observes a run, on the generator's thread: see [`Plan::run_watched`](super::Plan::run_watched).
pub trait Watch {
    /// Called when the measured time is about to begin, for example to read counters. Requests that
    /// are due during the call are late. If the call takes 0.1 ms, the generator catches up within
    /// a millisecond.
    fn window_begins(&mut self) {}
    /// Called when the measured time is over, for example to read counters again. Answers that
    /// arrive during the call are received late.
    fn window_ended(&mut self) {}
    /// Called every 50 ms. Returns whether to continue. It must be quick.
    fn check(&mut self) -> Check {
        Check::GoOn
    }
}

/// Whether a run continues.
#[derive(Debug)]
pub enum Check {
    /// Continue.
    GoOn,
    /// The user ends the run. What was measured is kept.
    Interrupted,
    /// The server has died. The text says what is known about it.
    ServerDied(String),
}

/// A [`Watch`] that does nothing.
impl Watch for () {}

/// The error of a run without a measurement.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No connection could be made at the beginning.
    #[error("cannot connect to {target}: {source}")]
    Connect {
        /// The server.
        target: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The server died.
    #[error("the server died {after:.1} s into the {phase}, after {answered} answers: {why}")]
    ServerDied {
        /// Seconds since that phase began.
        after: f64,
        /// `warm-up` or `measured time`.
        phase: &'static str,
        /// The number of answers until then.
        answered: u64,
        /// What is known about it.
        why: String,
    },
    /// The user ended it before anything was measured.
    #[error("interrupted before anything of it was measured")]
    Interrupted,
    /// The server accepts requests, but has not answered any.
    #[error(
        "the server answered none of {0} requests in time: does it speak this protocol, or need a longer timeout?"
    )]
    Silent(u64),
    /// The server has let no connection send a request: HTTP/2 begins with the server's settings.
    #[error("no connection could send a request: does the server speak this protocol?")]
    Unready,
    /// A system call failed.
    #[error("{0}")]
    Kernel(#[from] io::Error),
}

/// The result of a run.
///
/// [`percentiles`](Self::percentiles) returns the response times, and [`validity`](Self::validity)
/// says whether they are valid. [`to_run`](Self::to_run) returns all results, for JSON.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Measurement {
    /// What the run was to do.
    pub(crate) plan: Plan,
    /// Distributions and counts.
    pub recording: Recording,
    /// The measured time, in seconds.
    pub seconds: f64,
    /// The backlog that the server did not keep up with: unanswered requests at the end of the
    /// measured time, minus the maximum of unanswered requests in its first half.
    pub piled_up: u64,
    /// Connections that broke and were opened again.
    pub reconnected: u64,
    /// Connection attempts that were refused.
    pub refused: u64,
    /// The first failure's cause, for the user.
    pub first_failure: Option<String>,
    /// How many requests failed in the measured time, by cause.
    pub failures: BTreeMap<String, u64>,
    /// How often the server broke the protocol since the measured time began, by what was wrong. It
    /// also counts if no request waited on that connection.
    pub protocol_errors: BTreeMap<String, u64>,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// Seconds for which the generator's thread was ready to run, but had no CPU.
    pub robbed: f64,
}

impl Measurement {
    /// Adds another run of the same plan. The percentiles are then those of all requests together,
    /// not means.
    pub fn add(&mut self, other: &Self) {
        self.recording.merge(&other.recording);
        self.seconds += other.seconds;
        self.piled_up += other.piled_up;
        self.reconnected += other.reconnected;
        self.refused += other.refused;
        for (cause, count) in &other.failures {
            *self.failures.entry(cause.clone()).or_default() += count;
        }
        for (what, count) in &other.protocol_errors {
            *self.protocol_errors.entry(what.clone()).or_default() += count;
        }
        self.interrupted |= other.interrupted;
        self.robbed += other.robbed;
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
    }
}
