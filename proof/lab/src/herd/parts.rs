//! The parts of the experiment, by name. The plain servers, with which the others are compared,
//! belong to both.

/// The loops of one process, and what they are compared with.
pub(super) const LOOPS: &str = "loops";
/// Processes of one loop each, and other servers that consist of processes.
pub(super) const PROCESSES: &str = "processes";

pub(super) const PARTS: [&str; 2] = [LOOPS, PROCESSES];
