//! The parts of the experiment, by name.

/// The part of the public case: work that a post queues on the loop itself.
pub(super) const DEFERRED: &str = "deferred work";
/// The part of the synchronous call to a fresh process.
pub(super) const COLD: &str = "a cold call";
/// The part of posts to a loop that sleeps.
pub(super) const PARKED: &str = "posts to a parked loop";
/// The part of posts to a loop that never sleeps.
pub(super) const SPINNING: &str = "posts to a spinning loop";
