//! The result of a run, and what a running run asks its caller.

use std::collections::BTreeMap;
use std::io;

use thiserror::Error;

use super::plan::Plan;
use crate::recorder::Recording;

/// Observes a run, and may end it: see [`Plan::run_watched`](super::Plan::run_watched).
///
/// # Threads
/// The run calls the methods on its own thread, so they delay requests and answers while they run.
/// All of them do nothing by default.
pub trait Watch {
    /// Is called when the measured time is about to begin, for example to read counters. Requests
    /// that are due during the call are sent late. If the call takes 0.1 ms, the generator catches
    /// up within a millisecond.
    fn window_begins(&mut self) {}
    /// Is called when the measured time is over, for example to read counters again. Answers that
    /// arrive during the call are received late.
    fn window_ended(&mut self) {}
    /// Is called every 50 ms, also while connections are opened, and returns whether to continue.
    /// It must be quick.
    fn check(&mut self) -> Check {
        Check::GoOn
    }
}

/// Whether a run continues.
#[derive(Debug)]
pub enum Check {
    /// Continue.
    GoOn,
    /// End the run, because the user wants to. The result has what was measured until then.
    Interrupted,
    /// End the run with an error, because the server has died. The text says what is known about
    /// its death.
    ServerDied(String),
}

/// A [`Watch`] that does nothing.
impl Watch for () {}

/// The error of a run that has measured nothing.
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
    /// The server died: it refused many connections in a row, or the [`Watch`] reported its death.
    #[error("the server died {after:.1} s into the {phase}, after {answered} answers: {why}")]
    ServerDied {
        /// The number of seconds since the phase began.
        after: f64,
        /// The phase of the run, for example `warm-up` or `measured time`.
        phase: &'static str,
        /// The number of answers until then.
        answered: u64,
        /// What is known about the server's death.
        why: String,
    },
    /// The user ended the run before anything was measured.
    #[error("interrupted before anything of it was measured")]
    Interrupted,
    /// The server has accepted connections, but has not answered any of this number of requests.
    #[error(
        "the server answered none of {0} requests in time: does it speak this protocol, or need a longer timeout?"
    )]
    Silent(u64),
    /// No connection could send a request. In HTTP/2, a client first waits for the server's
    /// settings, which did not come.
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
    /// The distributions and counts.
    pub recording: Recording,
    /// The measured time, in seconds.
    pub seconds: f64,
    /// By how many requests the server fell behind: the number of unanswered requests at the end of
    /// the measured time, minus the largest number of unanswered requests in its first half.
    pub piled_up: u64,
    /// How many connections broke and were opened again.
    pub reconnected: u64,
    /// How many connection attempts were refused.
    pub refused: u64,
    /// The cause of the first failure, as a text for the user.
    pub first_failure: Option<String>,
    /// How many requests failed in the measured time, by cause.
    pub failures: BTreeMap<String, u64>,
    /// How often the server broke the protocol since the measured time began, by what was wrong.
    /// This includes connections on which no request waited.
    pub protocol_errors: BTreeMap<String, u64>,
    /// Whether the user ended the run early.
    pub interrupted: bool,
    /// For how many seconds the generator's thread was ready to run, but had no CPU.
    pub robbed: f64,
}

impl Measurement {
    /// Adds the result of another run of the same plan. The percentiles are then those of all
    /// requests of both runs, not means of percentiles.
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

#[cfg(test)]
impl Measurement {
    /// The result of a run that has recorded this.
    pub(crate) fn of(recording: Recording) -> Self {
        Self {
            plan: Plan::new("127.0.0.1:1".parse().expect("it is an address")),
            recording,
            seconds: 1.0,
            piled_up: 0,
            reconnected: 0,
            refused: 0,
            first_failure: None,
            failures: BTreeMap::new(),
            protocol_errors: BTreeMap::new(),
            interrupted: false,
            robbed: 0.0,
        }
    }
}
