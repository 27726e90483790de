//! Finds out whether the events of a process miss switches: `/proc` is read for a while beside them.
//!
//! The kernel ends the events of a process that executes a program with other rights. If that is a
//! child, which its parent's event has counted until then, no descriptor tells of it.

use std::collections::BTreeSet;

use super::processes::Processes;
use super::relief::MOST_THREADS;
use super::sampled::Sampled;

/// The events may miss this many switches, and as many as they count. In 5 s, which is the time
/// between two checks, there are more as soon as there is traffic.
const FEW: u64 = 100;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Missed {
    sampled: Sampled,
    total: u64,
}

impl Missed {
    /// Begins at a count of `total`. `None`: there are too many threads, or `/proc` cannot be read.
    pub(super) fn begin(processes: &mut Processes, total: u64) -> Option<Self> {
        let sampled = Sampled::of(processes).ok()?;
        (sampled.threads() <= MOST_THREADS).then_some(Self { sampled, total })
    }

    /// Have there been many more switches than were counted? Now the count is `total`.
    pub(super) fn are_many(mut self, processes: &mut Processes, total: u64) -> bool {
        let by_proc = self.sampled.count(processes, &mut BTreeSet::new()).unwrap_or(0);
        let counted = total.saturating_sub(self.total);
        by_proc > counted.saturating_mul(2).saturating_add(FEW)
    }
}
