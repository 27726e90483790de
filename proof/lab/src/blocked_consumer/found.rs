//! What the probe prints, and everything that is measured.

use serde::Deserialize;

use super::parts::STRESS;
use crate::interleaved::Measured;

/// The output of the probe for a stress.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Stress {
    pub(super) events_per_ms: f64,
    /// The system calls that woke the consumer. `None` if the kernel itself wakes it.
    pub(super) rings: Option<f64>,
    pub(super) allocations_per_event: f64,
}

/// The output of the probe for a sweep.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Sweep {
    pub(super) operations_per_second: f64,
}

/// The output of the probe for producers that do not run.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Priority {
    /// The reason why nothing was measured.
    pub(super) skipped: Option<String>,
    pub(super) worst_drain_us: Option<f64>,
    pub(super) worst_post_us: Option<f64>,
    pub(super) drains_rescued: f64,
    pub(super) posts_rescued: f64,
    pub(super) trials: f64,
    pub(super) drains_over_1ms: Option<f64>,
}

/// The output of the probe for the service.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Service {
    pub(super) requests_per_second: f64,
}

/// Everything that is measured.
pub(super) struct Found {
    pub(super) stress: Vec<Measured<Stress>>,
    pub(super) alone: Measured<Stress>,
    pub(super) sweep: Measured<Sweep>,
    pub(super) points: Measured<Priority>,
    pub(super) steps: Measured<Priority>,
    pub(super) quota: Measured<Priority>,
    pub(super) hog: Measured<Priority>,
    pub(super) service: Measured<Service>,
}

impl Found {
    pub(super) fn none() -> Self {
        Self {
            stress: STRESS.iter().map(|_| Measured::canned(Vec::new())).collect(),
            alone: Measured::canned(Vec::new()),
            sweep: Measured::canned(Vec::new()),
            points: Measured::canned(Vec::new()),
            steps: Measured::canned(Vec::new()),
            quota: Measured::canned(Vec::new()),
            hog: Measured::canned(Vec::new()),
            service: Measured::canned(Vec::new()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stress.iter().all(Measured::is_empty)
            && self.alone.is_empty()
            && self.sweep.is_empty()
            && [&self.points, &self.steps, &self.quota, &self.hog]
                .iter()
                .all(|measured| measured.is_empty())
            && self.service.is_empty()
    }
}
