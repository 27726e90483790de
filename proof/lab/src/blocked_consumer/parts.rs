//! The parts of the experiment, by name.

/// The parts of the public stress: the number of producers, and the name.
pub(super) const STRESS: [(u64, &str); 5] = [
    (8, "8 producers"),
    (16, "16 producers"),
    (32, "32 producers"),
    (64, "64 producers"),
    (128, "128 producers"),
];
/// One producer and one consumer, on a CPU each.
pub(super) const ALONE: &str = "one producer, one consumer, a CPU each";
/// One writer that sweeps over the sources of a worker.
pub(super) const SWEEP: &str = "a sweep over 64 sources";
/// Producers stopped at the points that a design names.
pub(super) const POINTS: &str = "a producer stopped at named points";
/// Producers stopped at any of their instructions.
pub(super) const STEPS: &str = "a producer stopped at any instruction";
/// Producers that a CPU quota stops.
pub(super) const QUOTA: &str = "producers under a CPU quota";
/// Producers beside a busy loop of a higher priority.
pub(super) const HOG: &str = "producers beside a CPU hog";
/// Requests whose replies come from 32 worker threads.
pub(super) const SERVICE: &str = "replies from 32 worker threads";
