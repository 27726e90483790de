//! The parts of the experiment, by name. The plain servers, which the others are compared with, are
//! in each.

/// The loops of one process, and what they are compared with.
pub(super) const LOOPS: &str = "loops";
/// Processes of one loop each, and servers of others that are processes.
pub(super) const PROCESSES: &str = "processes";

pub(super) const PARTS: [&str; 2] = [LOOPS, PROCESSES];
