//! Everything that is measured.

use super::block::Served;
use super::case::{CASES, Case};
use crate::interleaved::Measured;

/// Everything that is measured, case by case.
pub(super) struct Found(pub(super) Vec<Measured<Served>>);

impl Found {
    pub(super) fn none() -> Self {
        Self(CASES.iter().map(|_| Measured::default()).collect())
    }

    pub(super) fn of(&self, case: &Case) -> &Measured<Served> {
        let index = CASES.iter().position(|one| one.name == case.name);
        &self.0[index.unwrap_or_default()]
    }
}
