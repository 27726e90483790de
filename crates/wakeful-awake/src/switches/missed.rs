//! Finds out whether the events of a process miss switches: `/proc` is read beside them, from time
//! to time.
//!
//! The kernel ends the events of a process that executes a program with other rights. If that is a
//! child, which its parent's event has counted until then, no descriptor tells of it.

use std::collections::BTreeSet;

use super::processes::Processes;
use super::relief::MOST_THREADS;
use super::sampled::Sampled;

/// The events may miss this many switches, and as many as they count. In 5 s, which is the time
/// between two looks, there are more as soon as there is traffic.
const FEW: u64 = 100;
/// If there are too many threads to read, that is found out again after this many looks.
const REST: u32 = 60;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Missed {
    /// What `/proc` and the events said at the last look.
    last: Option<(Sampled, u64)>,
    /// How many looks are left out.
    rest: u32,
}

impl Missed {
    /// Have there been many more switches since the last look than were counted? Now the count is
    /// `total`.
    pub(super) fn look(&mut self, processes: &mut Processes, total: u64) -> bool {
        if let Some(rest) = self.rest.checked_sub(1) {
            self.rest = rest;
            return false;
        }
        let are_many = self.last.take().is_some_and(|(mut sampled, before)| {
            let by_proc = sampled.count(processes, &mut BTreeSet::new()).unwrap_or(0);
            let counted = total.saturating_sub(before);
            by_proc > counted.saturating_mul(2).saturating_add(FEW)
        });
        match Sampled::of(processes) {
            Ok(sampled) if sampled.threads() <= MOST_THREADS => self.last = Some((sampled, total)),
            Ok(_) => self.rest = REST,
            // The next look tries again.
            Err(_) => {}
        }
        are_many
    }
}
