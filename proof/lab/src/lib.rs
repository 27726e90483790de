//! Experiments. Each one tells a public case with its published figures, runs the same work on
//! wakeful and on its peers on this machine, and gives a verdict on every claim.
//!
//! [`EXPERIMENTS`] is the list. An [`Experiment`] gets a [`Lab`] and returns
//! [`Results`](wakeful_load::internals::results::Results). Contenders are programs:
//! [`wakeful`](contender::wakeful) itself and the [`peers`], which are built from source.
//! [`rounds`] measures servers under load, interleaved. [`mod@probes`] runs programs that measure
//! inside themselves. [`interleaved`] is used for them and for everything else. [`claims`] gives
//! the verdicts.

mod blocked_consumer;
pub mod claims;
mod cold;
pub mod contender;
mod echo;
mod herd;
pub mod interleaved;
mod lab;
mod late_wake;
pub mod peers;
pub mod probe;
pub mod probes;
pub mod rounds;
mod scratch;
mod shared_socket;
mod sleepy_median;
mod upgrade;

pub use lab::{Experiment, Findings, Lab, LabError, ProbeRuns, Size};

/// All experiments, in the order in which `lab all` runs them.
pub const EXPERIMENTS: &[&dyn Experiment] = &[
    &echo::Echo,
    &late_wake::LateWake,
    &sleepy_median::SleepyMedian,
    &blocked_consumer::BlockedConsumer,
    &herd::Herd,
    &shared_socket::SharedSocket,
    &upgrade::Upgrade,
];

/// Returns the experiment with that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn Experiment> {
    EXPERIMENTS.iter().copied().find(|experiment| experiment.name() == name)
}
