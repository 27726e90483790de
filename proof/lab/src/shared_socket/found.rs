//! Everything that is measured.

use super::crash::Raced;
use super::read_write::Workload;
use super::torture::Tortured;
use crate::interleaved::Measured;

/// Everything that is measured.
#[derive(Default)]
pub(super) struct Found {
    /// In the order of [`WORKLOADS`](super::read_write::WORKLOADS), as far as it was measured.
    pub(super) table: Vec<Workload>,
    pub(super) crash: Measured<Raced>,
    pub(super) pickers: Measured<f64>,
    pub(super) torture: Option<Tortured>,
}

impl Found {
    pub(super) fn is_empty(&self) -> bool {
        self.table.iter().all(|workload| workload.rates.is_empty())
            && self.crash.is_empty()
            && self.pickers.is_empty()
            && self.torture.is_none()
    }
}
