//! What a run asks while it goes on, and what comes of it.

use std::collections::BTreeMap;
use std::io;

use thiserror::Error;

use super::plan::Plan;
use crate::recorder::Recording;

/// Looks on while a run goes on, from the generator's own thread: see
/// [`Plan::run_watched`](super::Plan::run_watched).
pub trait Watch {
    /// The measured time is about to begin: read the counters. What is due meanwhile is late, and
    /// settles within a millisecond if this took a tenth of that.
    fn window_begins(&mut self) {}
    /// The measured time is over: read the counters again. Answers that come meanwhile are taken
    /// late.
    fn window_ended(&mut self) {}
    /// Asked every 50 ms; it must not take long.
    fn check(&mut self) -> Check {
        Check::GoOn
    }
}

/// Whether to go on.
#[derive(Debug)]
pub enum Check {
    /// Yes.
    GoOn,
    /// The user wants it to end: keep what was measured.
    Interrupted,
    /// The server has died, with what is known of it.
    ServerDied(String),
}

/// A [`Watch`] that looks away.
impl Watch for () {}

/// Why there is no measurement.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No connection at the beginning.
    #[error("cannot connect to {target}: {source}")]
    Connect {
        /// The server.
        target: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The server went away.
    #[error("the server died {after:.1} s into the {phase}, after {answered} answers: {why}")]
    ServerDied {
        /// Seconds since that phase began.
        after: f64,
        /// `warm-up` or `measured time`.
        phase: &'static str,
        /// Answers until then.
        answered: u64,
        /// What is known.
        why: String,
    },
    /// The user ended it before anything was measured.
    #[error("interrupted before anything of it was measured")]
    Interrupted,
    /// The server accepts requests, but nothing has come back.
    #[error("no answer to any of {0} requests: is it the right protocol?")]
    Silent(u64),
    /// The kernel refused something.
    #[error("{0}")]
    Kernel(#[from] io::Error),
}

/// What a run measured.
///
/// [`percentiles`](Self::percentiles) has the response times in figures, and
/// [`validity`](Self::validity) says whether they may be believed. [`to_run`](Self::to_run) has all
/// of it, for JSON.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Measurement {
    /// What the run was to do.
    pub(crate) plan: Plan,
    /// Distributions and counts.
    pub recording: Recording,
    /// Seconds measured.
    pub seconds: f64,
    /// Requests that had piled up at the end of the measured time, beyond the most that were
    /// unanswered in its first half: what the server did not keep up with.
    pub piled_up: u64,
    /// Connections that broke and were opened again.
    pub reconnected: u64,
    /// Connects that were refused.
    pub refused: u64,
    /// The first failure's cause, for the user.
    pub first_failure: Option<String>,
    /// How many of the measured time's requests failed, by cause.
    pub failures: BTreeMap<String, u64>,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// Seconds for which the generator's thread was ready to run and was not let.
    pub robbed: f64,
}

impl Measurement {
    /// Adds another run of the same plan: percentiles of several runs are those of all their
    /// requests together, never means.
    pub fn add(&mut self, other: &Self) {
        self.recording.merge(&other.recording);
        self.seconds += other.seconds;
        self.piled_up += other.piled_up;
        self.reconnected += other.reconnected;
        self.refused += other.refused;
        for (cause, count) in &other.failures {
            *self.failures.entry(cause.clone()).or_default() += count;
        }
        self.interrupted |= other.interrupted;
        self.robbed += other.robbed;
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
    }
}
