//! The parts of the experiment by name, and how much is measured.

use std::time::Duration;

use crate::lab::{Lab, Size};

pub(super) const RATE: &str = "rates";
pub(super) const AWAKE: &str = "awake";
pub(super) const FRUGALITY: &str = "hit-rate";
pub(super) const PATIENCE: &str = "max-window";
pub(super) const CAP: &str = "max-cpu";
pub(super) const HOG: &str = "hog";
pub(super) const CLIENT: &str = "client";
pub(super) const COMEBACK: &str = "comeback";
pub(super) const QUOTA: &str = "quota";
pub(super) const SILENCE: &str = "silence";
pub(super) const CHAIN: &str = "chain";
pub(super) const PROXY: &str = "proxy";

/// All parts, in the order in which they are measured.
pub(super) const PARTS: [&str; 12] =
    [RATE, AWAKE, FRUGALITY, PATIENCE, CAP, HOG, CLIENT, COMEBACK, QUOTA, SILENCE, CHAIN, PROXY];

/// The requests per second in the part about held CPUs.
pub(super) const AWAKE_RATES: [f64; 6] = [10.0, 100.0, 1e3, 1e4, 5e4, 1e5];
/// The indices of the rates that claims are about.
pub(super) const AWAKE_AT_100: usize = 1;
pub(super) const AWAKE_AT_1K: usize = 2;
pub(super) const AWAKE_AT_10K: usize = 3;
pub(super) const AWAKE_AT_100K: usize = 5;

/// The loads of the chain, by the names of their tables.
pub(super) const CHAINS: [&str; 4] = [
    "10k/s over 32 connections",
    "100k/s over 32 connections",
    "few and idle clients: 100/s over 2 connections",
    "10k/s over 32 connections, beside 200 clients that dribble",
];

/// The loads of the proxy.
pub(super) const PROXIES: [&str; 3] = [CHAINS[0], CHAINS[2], CHAINS[3]];

/// How much is measured.
pub(super) struct Extent {
    pub(super) rounds: usize,
    /// The measured time of a block. From 1.2 s on, there is a p99 at 10k/s.
    pub(super) block: Duration,
}

impl Extent {
    pub(super) fn of(lab: &Lab<'_>) -> Self {
        let (rounds, seconds) = match lab.size {
            Size::Quick => (2, 0.5),
            Size::Full => (5, 1.2),
        };
        Self {
            rounds: lab.rounds.unwrap_or(rounds),
            block: lab.block.unwrap_or(Duration::from_secs_f64(seconds)),
        }
    }

    /// Returns the rounds for peers that no claim names, and for the quota, the silence, the chain
    /// and the proxy.
    pub(super) fn field_rounds(&self) -> usize {
        (self.rounds / 2).max(1)
    }
}
