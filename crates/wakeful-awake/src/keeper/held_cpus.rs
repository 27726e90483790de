//! Sets the CPUs' files to the values that their holders need, and restores the previous values.
//!
//! The state file is a journal. A value is in the state file before it is written to a CPU, and
//! stays there until the old value is restored. So if a keeper is killed at any point, its
//! successor finds all its values in the state file.
//!
//! A value that is not ours was written by another program meanwhile. It is left alone, and counts
//! as the previous value of the next hold.
//!
//! A CPU that is released is often held again soon. So its line stays in the state file for a
//! second, marked as not held. The mark `holds 1` is set before the CPU is written, and cleared
//! when the old value is back, each by one write of one byte. So if another program writes a value
//! meanwhile, the line never claims that the value is ours, even if we wrote the same value before.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::cpu_files::{CpuFiles, Limit};
use super::lines::Lines;
use super::state_file::{Changed, Changes, StateFile};
use crate::keeper_protocol::format_cpus;

/// How long the line of a CPU stays after its release.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct HeldCpus {
    files: CpuFiles,
    state: StateFile,
    changes: Changes,
    /// The content of the state file, as far as it is known.
    stored: Changes,
    /// The CPUs whose old value could not be restored.
    unrestored: BTreeSet<usize>,
    /// The CPUs that were released, with the time. `changes` still contains them.
    released: BTreeMap<usize, Instant>,
}

/// Why CPUs are not held as they should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum HoldFailed {
    #[error("CPU {0} is offline")]
    Offline(usize),
    #[error("CPU {0}: {1}")]
    Cpu(usize, #[source] io::Error),
    #[error("cannot use the keeper's state file {0}, so no CPU is held: {1}")]
    State(String, #[source] io::Error),
}

impl HeldCpus {
    /// Restores the values that an earlier keeper has not restored.
    pub(super) fn recover(files: CpuFiles, state: &Path, lines: &mut Lines) -> Self {
        let state = StateFile::new(state);
        let stored = state.read().unwrap_or_else(|error| {
            lines.trouble(error);
            Changes::new()
        });
        let mut changes = stored.clone();
        changes.retain(|_, changed| changed.holds);
        let (unrestored, released) = (BTreeSet::new(), BTreeMap::new());
        let mut held = Self { files, state, changes, stored, unrestored, released };
        if held.changes.is_empty() {
            held.store_if_changed(lines);
        } else {
            let cpus: Vec<usize> = held.changes.keys().copied().collect();
            lines.note(format_args!(
                "an earlier keeper was killed while it held CPUs {}: this keeper restores the \
                 earlier values",
                format_cpus(&cpus)
            ));
            held.restore_all(lines);
        }
        held
    }

    pub(super) fn files(&self) -> &CpuFiles {
        &self.files
    }

    /// The CPUs that are held for nobody, because their old value could not be restored.
    pub(super) fn unrestored(&self) -> Vec<usize> {
        self.unrestored.iter().copied().collect()
    }

    /// Sets these CPUs to the values of `wanted`: a number of microseconds, or `None` for the
    /// previous value. It restores everything that can be restored, even after an error.
    ///
    /// `asked` are the CPUs that somebody asks for now. If another one cannot be set, because it
    /// went offline while it was held, that is logged, and keeps no CPU from its value.
    ///
    /// # Errors
    /// A CPU of `asked` cannot be held in this way, or the state file cannot be written. Other
    /// wanted CPUs may be held now, so the caller must set all of them back.
    pub(super) fn bring(
        &mut self,
        cpus: &[usize],
        asked: &[usize],
        wanted: impl Fn(usize) -> Option<u32>,
        lines: &mut Lines,
    ) -> Result<(), HoldFailed> {
        let held = self.hold(cpus, asked, &wanted, lines);
        for &cpu in cpus.iter().filter(|cpu| wanted(**cpu).is_none()) {
            self.restore(cpu, lines);
        }
        self.store_if_changed(lines);
        held
    }

    /// The content is correct, although it may name more CPUs than necessary.
    fn store_if_changed(&mut self, lines: &mut Lines) {
        if self.stored != self.changes
            && let Err(error) = self.store()
        {
            lines.trouble(error);
        }
    }

    /// When the next line has stayed long enough.
    pub(super) fn next_to_forget(&self) -> Option<Instant> {
        self.released.values().min().map(|released| *released + LINGER)
    }

    /// Forgets CPUs that were released long before `now`.
    pub(super) fn forget_released(&mut self, now: Instant, lines: &mut Lines) {
        let is_old = |released: &Instant| now.saturating_duration_since(*released) >= LINGER;
        if !self.released.values().any(is_old) {
            return;
        }
        let changes = &mut self.changes;
        self.released.retain(|cpu, released| {
            if is_old(released) {
                changes.remove(cpu);
            }
            !is_old(released)
        });
        self.store_if_changed(lines);
    }

    /// Restores the previous value wherever a value of ours stands.
    pub(super) fn restore_all(&mut self, lines: &mut Lines) {
        let cpus: Vec<usize> = self.changes.keys().copied().collect();
        // No CPU is wanted, so holding cannot fail.
        let _ = self.bring(&cpus, &[], |_| None, lines);
        for cpu in std::mem::take(&mut self.released).into_keys() {
            self.changes.remove(&cpu);
        }
        self.store_if_changed(lines);
    }

    /// Does another program allow this CPU no idle state?
    pub(super) fn is_held_by_others(&self, cpu: usize) -> bool {
        let held = Limit::Microseconds(0);
        match self.changes.get(&cpu) {
            Some(changed) if changed.holds => changed.before == held,
            _ => self.files.read(cpu).is_ok_and(|limit| limit == held),
        }
    }

    fn hold(
        &mut self,
        cpus: &[usize],
        asked: &[usize],
        wanted: impl Fn(usize) -> Option<u32>,
        lines: &mut Lines,
    ) -> Result<(), HoldFailed> {
        let mut planned = self.changes.clone();
        let mut to_write = Vec::new();
        for &cpu in cpus {
            let Some(microseconds) = wanted(cpu) else { continue };
            if asked.contains(&cpu) && self.files.is_offline(cpu) {
                return Err(HoldFailed::Offline(cpu));
            }
            let now = match self.files.read(cpu) {
                Ok(now) => now,
                Err(error) => {
                    unless_asked(cpu, error, asked, lines)?;
                    continue;
                }
            };
            let changed = planned.entry(cpu).or_insert(Changed::nothing(now));
            if changed.holds && !changed.wrote.contains(&now) {
                lines.trouble(left_alone(cpu, now));
            }
            let limit = plan(changed, now, microseconds);
            if now != limit {
                to_write.push((cpu, limit));
            }
        }
        let before = std::mem::replace(&mut self.changes, planned);
        if self.stored != self.changes
            && let Err(error) = self.store()
        {
            self.changes = before;
            return Err(error);
        }
        for cpu in cpus {
            if self.changes.get(cpu).is_some_and(|changed| changed.holds) {
                self.released.remove(cpu);
            }
        }
        for (cpu, limit) in to_write {
            if let Err(error) = self.files.write(cpu, limit) {
                unless_asked(cpu, error, asked, lines)?;
                continue;
            }
            if let Some(changed) = self.changes.get_mut(&cpu) {
                changed.wrote = vec![limit];
            }
            self.unrestored.remove(&cpu);
        }
        Ok(())
    }

    fn restore(&mut self, cpu: usize, lines: &mut Lines) {
        self.unrestored.remove(&cpu);
        let Some(changed) = self.changes.get_mut(&cpu).filter(|changed| changed.holds) else {
            return;
        };
        let Changed { before, ref wrote, .. } = *changed;
        let mut lingers = true;
        let restored = match self.files.read(cpu) {
            Ok(now) if now == before => Ok(()),
            Ok(now) if wrote.contains(&now) => self.files.write(cpu, before),
            Ok(now) => {
                lines.trouble(left_alone(cpu, now));
                lingers = false;
                Ok(())
            }
            // The CPU was taken out of the machine.
            Err(error) if is_gone(&error) => {
                lingers = false;
                Ok(())
            }
            Err(error) => Err(error),
        };
        match restored {
            Ok(()) if lingers => {
                changed.holds = false;
                self.released.insert(cpu, Instant::now());
            }
            Ok(()) => drop(self.changes.remove(&cpu)),
            // The restoration is tried again soon, at the end, and by a successor.
            Err(error) => {
                self.unrestored.insert(cpu);
                lines.trouble(format_args!(
                    "CPU {cpu} is still held: cannot write its earlier value, {before}, to {}: \
                     {error}",
                    self.files.path(cpu).display()
                ));
            }
        }
    }

    fn store(&mut self) -> Result<(), HoldFailed> {
        self.state
            .update(&mut self.stored, &self.changes)
            .map_err(|error| HoldFailed::State(self.state.path().display().to_string(), error))
    }
}

/// Called before a CPU is held with a latency of this many microseconds, while its file contains
/// `now`. Changes its line of the state file to what must be there first. Returns the value to
/// write to the CPU's file.
fn plan(changed: &mut Changed, now: Limit, microseconds: u32) -> Limit {
    let is_somebody_elses =
        if changed.holds { !changed.wrote.contains(&now) } else { changed.before != now };
    if is_somebody_elses {
        *changed = Changed::nothing(now);
    }
    let limit = changed.before.tighter(Limit::Microseconds(microseconds));
    if changed.holds {
        // This value may remain in the file if the keeper is killed before it writes.
        changed.wrote.retain(|wrote| *wrote == now);
        if changed.wrote.last() != Some(&limit) {
            changed.wrote.push(limit);
        }
    } else if changed.wrote != [limit] {
        changed.wrote = vec![limit];
    }
    changed.holds = true;
    limit
}

/// # Errors
/// Somebody asks for this CPU.
fn unless_asked(
    cpu: usize,
    error: io::Error,
    asked: &[usize],
    lines: &mut Lines,
) -> Result<(), HoldFailed> {
    let failed = HoldFailed::Cpu(cpu, error);
    if asked.contains(&cpu) {
        return Err(failed);
    }
    lines.trouble(failed);
    Ok(())
}

fn left_alone(cpu: usize, now: Limit) -> String {
    format!(
        "another process wrote {now} to the pm_qos_resume_latency_us of CPU {cpu} while the \
         keeper held it: the keeper leaves that value"
    )
}

fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NODEV | Errno::NXIO))
}

#[cfg(test)]
mod tests;
