//! What the probes print, and everything that is measured.

use serde::Deserialize;

use crate::cold::Cold;
use crate::interleaved::Measured;
use crate::probes::Times;

/// What a probe of [`DEFERRED`](super::parts::DEFERRED) prints. Times are nanoseconds.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Deferred {
    /// The time from just before post #1 until the work that it queued ran.
    pub(super) local: Times,
    /// The time from just before post #2 until it ran.
    pub(super) second: Times,
    /// The time until the loop's timer at the first post #1.
    pub(super) timer_left: f64,
    /// The most times that the loop's thread slept between post #1 and the end of both.
    pub(super) sleeps: f64,
    /// The number of times that the loop parked meanwhile, if the loop counts that.
    pub(super) parks: Option<f64>,
}

/// What a probe of posts prints.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Posts {
    /// The time from just before the call until the loop ran the post.
    pub(super) latency: Times,
    /// The time that the call took.
    pub(super) cost: Times,
    /// How many times the loop's thread slept per post: about 1 if it parks.
    pub(super) sleeps_per_post: f64,
}

/// Everything that is measured.
pub(super) struct Found {
    pub(super) deferred: Measured<Deferred>,
    pub(super) cold: Measured<Cold>,
    pub(super) parked: Measured<Posts>,
    pub(super) spinning: Measured<Posts>,
}
