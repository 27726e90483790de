//! Everything that is measured.

use wakeful_load::internals::series::Figures;

use super::awake::Held;
use super::cases::Capped;
use super::client::Calls;
use super::hog::{Beside, Comeback};
use super::quota::Throttled;
use super::rates::Rates;
use super::silence::Silence;
use crate::interleaved::Measured;

/// Everything that is measured.
#[derive(Default)]
pub(super) struct Found {
    pub(super) rates: Rates,
    /// The part about held CPUs, by rate, in the order of
    /// [`AWAKE_RATES`](super::parts::AWAKE_RATES).
    pub(super) awake: Vec<Measured<Held>>,
    pub(super) frugality: Measured<Figures>,
    pub(super) patience: Measured<Figures>,
    pub(super) cap: Measured<Capped>,
    pub(super) hog: Measured<Beside>,
    pub(super) client: Measured<Calls>,
    pub(super) comeback: Measured<Option<Comeback>>,
    pub(super) quota: Measured<Throttled>,
    pub(super) silence: Measured<Silence>,
    /// By load, in the order of [`CHAINS`](super::parts::CHAINS).
    pub(super) chain: Vec<Measured<Figures>>,
    /// By load, in the order of [`PROXIES`](super::parts::PROXIES).
    pub(super) proxy: Vec<Measured<Figures>>,
    /// Where the two services of the chain ran.
    pub(super) places: String,
}

impl Found {
    pub(super) fn is_empty(&self) -> bool {
        self.rates.runs.is_empty()
            && [&self.frugality, &self.patience].iter().all(|measured| measured.is_empty())
            && self.cap.is_empty()
            && self.hog.is_empty()
            && self.client.is_empty()
            && self.comeback.is_empty()
            && self.quota.is_empty()
            && self.silence.is_empty()
            && self.awake.iter().all(Measured::is_empty)
            && self.chain.iter().chain(&self.proxy).all(Measured::is_empty)
    }
}
