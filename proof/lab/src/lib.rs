//! Experiments. Each tells a public case with its published figures, runs the same work here on
//! wakeful and on its peers, and gives a verdict on every claim.
//!
//! [`EXPERIMENTS`] is the list; an [`Experiment`] gets a [`Lab`] and returns
//! [`Results`](wakeful_load::internals::results::Results). Contenders are programs:
//! [`wakeful`](contender::wakeful) itself and the [`peers`], which are built from source beside it.
//! [`rounds`] loads servers interleaved, [`mod@probes`] are programs that measure inside
//! themselves, [`interleaved`] is for them and for everything else, [`claims`] decides.

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

/// The experiment of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn Experiment> {
    EXPERIMENTS.iter().copied().find(|experiment| experiment.name() == name)
}
