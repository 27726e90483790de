//! Brings the CPUs' files to what their holders ask for, and back to what stood there before.
//!
//! The order is that of a journal. What may be written to a CPU is in the state file before it is
//! written to the CPU, and stays there until the old value is restored. So a keeper that is killed
//! at any point leaves only values that its successor finds in the state file.
//!
//! A value that is not ours is somebody else's, who came meanwhile. It is left alone, and is what
//! stood there before the next hold.
//!
//! A CPU that is let go is often held again soon. So its line stays in the state file for a second,
//! marked as that of a CPU that is not held. The mark is set before the CPU is written, and taken
//! off once the old value is back, each by one write of one byte. So the line never says of a value
//! that somebody else writes meanwhile that it is ours, even if it is the one that we wrote before.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::cpu_files::{CpuFiles, Limit};
use super::lines::Lines;
use super::state_file::{Changed, Changes, StateFile};
use crate::keeper_protocol::format_cpus;

/// The line of a CPU stays for so long after its release.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct HeldCpus {
    files: CpuFiles,
    state: StateFile,
    changes: Changes,
    /// What the state file says, as far as known.
    stored: Changes,
    /// Those whose old value could not be restored.
    unrestored: BTreeSet<usize>,
    /// Those that were released, and when: `changes` still has them.
    released: BTreeMap<usize, Instant>,
}

/// Why CPUs are not held as they should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum HoldFailed {
    #[error("CPU {0} is offline")]
    Offline(usize),
    #[error("CPU {0}: {1}")]
    Cpu(usize, #[source] io::Error),
    #[error("{0}, in which the keeper notes what it has to undo: {1}")]
    State(String, #[source] io::Error),
}

impl HeldCpus {
    /// Restores what an earlier keeper has not restored.
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
                "an earlier keeper was killed while it held CPUs {}: what stood there before is restored",
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

    /// Brings these CPUs to what `wanted` says: a number of microseconds, or `None` for what stood
    /// there before. Restores all that can be restored, also after an error.
    ///
    /// # Errors
    /// A CPU that is wanted cannot be held so. Others of them may be held now: bring all of them to
    /// what they were.
    pub(super) fn bring(
        &mut self,
        cpus: &[usize],
        wanted: impl Fn(usize) -> Option<u32>,
        lines: &mut Lines,
    ) -> Result<(), HoldFailed> {
        let held = self.hold(cpus, &wanted, lines);
        for &cpu in cpus.iter().filter(|cpu| wanted(**cpu).is_none()) {
            self.restore(cpu, lines);
        }
        self.store_if_changed(lines);
        held
    }

    /// What it says is true, if more than has to be.
    fn store_if_changed(&mut self, lines: &mut Lines) {
        if self.stored != self.changes
            && let Err(error) = self.store()
        {
            lines.trouble(error);
        }
    }

    /// When a line has been there for long enough.
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

    /// Restores what stood there before, wherever a value of ours stands.
    pub(super) fn restore_all(&mut self, lines: &mut Lines) {
        let cpus: Vec<usize> = self.changes.keys().copied().collect();
        // No CPU is wanted, so none can fail to be held.
        let _ = self.bring(&cpus, |_| None, lines);
        for cpu in std::mem::take(&mut self.released).into_keys() {
            self.changes.remove(&cpu);
        }
        self.store_if_changed(lines);
    }

    /// Does anybody else allow this CPU no idle state?
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
        wanted: impl Fn(usize) -> Option<u32>,
        lines: &mut Lines,
    ) -> Result<(), HoldFailed> {
        let mut planned = self.changes.clone();
        let mut to_write = Vec::new();
        for &cpu in cpus {
            let Some(microseconds) = wanted(cpu) else { continue };
            if self.files.is_offline(cpu) {
                return Err(HoldFailed::Offline(cpu));
            }
            let now = self.files.read(cpu).map_err(|error| HoldFailed::Cpu(cpu, error))?;
            let changed = planned.entry(cpu).or_insert(Changed::nothing(now));
            if changed.holds {
                if !changed.wrote.contains(&now) {
                    lines.trouble(left_alone(cpu, now));
                    *changed = Changed::nothing(now);
                }
            } else if changed.before != now {
                // Nothing of ours stood there, so this is somebody else's, whatever it is.
                *changed = Changed::nothing(now);
            }
            let limit = changed.before.tighter(Limit::Microseconds(microseconds));
            if now != limit {
                to_write.push((cpu, limit));
            }
            if changed.holds {
                changed.wrote.retain(|wrote| *wrote == now);
                if changed.wrote.last() != Some(&limit) {
                    changed.wrote.push(limit);
                }
            } else if changed.wrote != [limit] {
                changed.wrote = vec![limit];
            }
            changed.holds = true;
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
            self.files.write(cpu, limit).map_err(|error| HoldFailed::Cpu(cpu, error))?;
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
            // It was taken out of the machine.
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
            // It is tried again soon, at the end, and by a successor.
            Err(error) => {
                self.unrestored.insert(cpu);
                lines.trouble(format_args!(
                    "CPU {cpu} is still held: {before} cannot be restored in {}: {error}",
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

fn left_alone(cpu: usize, now: Limit) -> String {
    format!(
        "somebody else wrote {now} to the pm_qos_resume_latency_us of CPU {cpu} while it was held: that is left alone"
    )
}

fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NODEV | Errno::NXIO))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Four CPUs and a state file, removed with the value.
    struct Tree(PathBuf);

    impl Tree {
        fn new() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let root = format!("wakeful-held-{}-{number}", std::process::id());
            let tree = Self(std::env::temp_dir().join(root));
            for cpu in 0..4 {
                fs::create_dir_all(tree.0.join(format!("cpu{cpu}/power"))).unwrap();
                tree.put(cpu, "0");
            }
            tree
        }

        fn file(&self, cpu: usize) -> PathBuf {
            CpuFiles::new(&self.0).path(cpu)
        }

        fn put(&self, cpu: usize, text: &str) {
            fs::write(self.file(cpu), format!("{text}\n")).unwrap();
        }

        fn says(&self) -> Vec<String> {
            let says = |cpu| CpuFiles::new(&self.0).read(cpu).unwrap().to_string();
            (0..4).map(says).collect()
        }

        fn state(&self) -> PathBuf {
            self.0.join("state")
        }

        fn held(&self) -> HeldCpus {
            HeldCpus::recover(CpuFiles::new(&self.0), &self.state(), &mut Lines::default())
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// As if a second had passed.
    fn later(held: &mut HeldCpus) {
        held.forget_released(Instant::now() + LINGER, &mut Lines::default());
        assert_eq!(held.next_to_forget(), None);
    }

    fn bring(held: &mut HeldCpus, cpus: &[usize], wanted: Option<u32>) -> Result<(), HoldFailed> {
        held.bring(cpus, |_| wanted, &mut Lines::default())
    }

    #[test]
    fn what_stood_there_before_is_restored() {
        let tree = Tree::new();
        tree.put(1, "100");
        tree.put(2, "n/a");
        let mut held = tree.held();
        bring(&mut held, &[0, 1, 2], Some(5)).unwrap();
        // Never less tight than somebody else wants it.
        assert_eq!(tree.says(), ["5", "5", "n/a", "0"]);
        bring(&mut held, &[0, 1], Some(0)).unwrap();
        assert_eq!(tree.says(), ["n/a", "n/a", "n/a", "0"]);
        assert!(tree.state().exists());
        bring(&mut held, &[0, 1, 2], None).unwrap();
        assert_eq!(tree.says(), ["0", "100", "n/a", "0"]);
        assert!(tree.state().exists());
        later(&mut held);
        assert!(!tree.state().exists());
    }

    #[test]
    fn a_successor_restores_whatever_of_ours_stands_there() {
        for stands in ["n/a", "5", "0"] {
            let tree = Tree::new();
            let mut held = tree.held();
            bring(&mut held, &[0], Some(0)).unwrap();
            bring(&mut held, &[0], Some(5)).unwrap();
            // As if it had been killed between the state file and the CPU.
            held.changes.get_mut(&0).unwrap().wrote =
                vec![Limit::Microseconds(0), Limit::Microseconds(5)];
            held.store().unwrap();
            tree.put(0, stands);
            drop(held);
            tree.held();
            assert_eq!(tree.says(), ["0"; 4], "{stands}");
            assert!(!tree.state().exists());
        }
    }

    #[test]
    fn a_value_of_somebody_else_is_left_alone() {
        let tree = Tree::new();
        let mut held = tree.held();
        bring(&mut held, &[0, 1], Some(0)).unwrap();
        tree.put(0, "77");
        bring(&mut held, &[0, 1], None).unwrap();
        assert_eq!(tree.says(), ["77", "0", "0", "0"]);

        bring(&mut held, &[0], Some(0)).unwrap();
        tree.put(0, "88");
        bring(&mut held, &[0], Some(0)).unwrap();
        assert_eq!(tree.says(), ["n/a", "0", "0", "0"]);
        bring(&mut held, &[0], None).unwrap();
        assert_eq!(tree.says(), ["88", "0", "0", "0"]);

        bring(&mut held, &[0], Some(0)).unwrap();
        tree.put(0, "99");
        drop(held);
        tree.held();
        assert_eq!(tree.says(), ["99", "0", "0", "0"]);
    }

    #[test]
    fn a_cpu_that_cannot_be_held_leaves_the_others_to_be_brought_back() {
        let tree = Tree::new();
        let mut held = tree.held();
        assert!(matches!(bring(&mut held, &[0, 9], Some(0)), Err(HoldFailed::Cpu(9, _))));
        bring(&mut held, &[0, 9], None).unwrap();
        fs::write(tree.0.join("cpu3/online"), "0\n").unwrap();
        assert!(matches!(bring(&mut held, &[2, 3], Some(0)), Err(HoldFailed::Offline(3))));
        bring(&mut held, &[2, 3], None).unwrap();
        assert_eq!(tree.says(), ["0"; 4]);
        later(&mut held);
        assert!(!tree.state().exists());
        // One that is taken out while it is held.
        bring(&mut held, &[0, 1], Some(0)).unwrap();
        fs::remove_dir_all(tree.0.join("cpu1")).unwrap();
        bring(&mut held, &[0, 1], None).unwrap();
        later(&mut held);
        assert!(!tree.state().exists());
    }

    #[test]
    fn a_value_that_cannot_be_restored_is_remembered_and_tried_again() {
        let tree = Tree::new();
        let mut held = tree.held();
        bring(&mut held, &[0, 1], Some(0)).unwrap();
        fs::remove_file(tree.file(0)).unwrap();
        fs::create_dir(tree.file(0)).unwrap();
        bring(&mut held, &[0, 1], None).unwrap();
        assert_eq!(held.unrestored(), [0]);
        assert!(tree.state().exists());
        fs::remove_dir(tree.file(0)).unwrap();
        tree.put(0, "n/a");
        bring(&mut held, &[0], None).unwrap();
        assert_eq!((held.unrestored(), tree.says()), (vec![], vec!["0".to_owned(); 4]));
        later(&mut held);
        assert!(!tree.state().exists());
    }

    #[test]
    fn without_a_state_file_nothing_is_written() {
        let tree = Tree::new();
        let files = CpuFiles::new(&tree.0);
        let state = tree.0.join("missing/state");
        let mut held = HeldCpus::recover(files, &state, &mut Lines::default());
        assert!(matches!(bring(&mut held, &[0], Some(0)), Err(HoldFailed::State(..))));
        assert_eq!(tree.says(), ["0"; 4]);
        fs::create_dir(tree.0.join("missing")).unwrap();
        bring(&mut held, &[0], Some(0)).unwrap();
        // What is held can be released all the same.
        fs::remove_dir_all(tree.0.join("missing")).unwrap();
        bring(&mut held, &[0], None).unwrap();
        assert_eq!(tree.says(), ["0"; 4]);
    }

    #[test]
    fn a_cpu_that_is_held_again_soon_has_its_line_already() {
        let tree = Tree::new();
        let mut held = tree.held();
        bring(&mut held, &[0], Some(0)).unwrap();
        let number = || fs::metadata(tree.state()).unwrap().ino();
        let first = number();
        for _ in 0..3 {
            bring(&mut held, &[0], None).unwrap();
            assert_eq!(tree.says(), ["0"; 4]);
            bring(&mut held, &[0], Some(0)).unwrap();
            assert_eq!(tree.says(), ["n/a", "0", "0", "0"]);
            later(&mut held);
            assert_eq!(number(), first, "it was not written anew");
        }
        // Killed.
        drop(held);
        tree.held();
        assert_eq!(tree.says(), ["0"; 4]);
    }

    #[test]
    fn our_own_value_is_somebody_else_s_once_the_cpu_was_released() {
        let tree = Tree::new();
        let others = || tree.put(0, "n/a");
        let released = || {
            tree.put(0, "0");
            let mut held = tree.held();
            bring(&mut held, &[0], Some(0)).unwrap();
            bring(&mut held, &[0], None).unwrap();
            assert_eq!(tree.says(), ["0"; 4]);
            assert!(tree.state().exists());
            others();
            held
        };
        let is_left = || assert_eq!(tree.says(), ["n/a", "0", "0", "0"]);
        // Killed.
        drop(released());
        tree.held();
        is_left();
        let mut held = released();
        later(&mut held);
        is_left();
        let mut held = released();
        held.restore_all(&mut Lines::default());
        is_left();
        let mut held = released();
        for microseconds in [5, 0] {
            bring(&mut held, &[0], Some(microseconds)).unwrap();
            bring(&mut held, &[0], None).unwrap();
            is_left();
        }
        bring(&mut held, &[0], Some(0)).unwrap();
        drop(held);
        tree.held();
        is_left();
    }

    /// Whatever clients and others do, and whenever the keeper is killed, what others wrote last
    /// stands there in the end. (While a CPU is held, others write no value of ours.)
    #[test]
    fn what_others_wrote_last_stands_there_after_each_kill() {
        const VALUES: [&str; 4] = ["0", "n/a", "5", "77"];
        let seed = std::process::id();
        eprintln!("seed {seed}");
        let mut random = u64::from(seed);
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from((random >> 33) % limit).unwrap()
        };
        let tree = Tree::new();
        let mut others = ["0"; 4];
        let mut is_held = [false; 4];
        let mut held = tree.held();
        for step in 0..4000 {
            let cpu = below(4);
            match below(16) {
                0 => {
                    drop(held);
                    held = tree.held();
                    is_held = [false; 4];
                }
                1 => later(&mut held),
                2 if !is_held[cpu] => {
                    others[cpu] = VALUES[below(4)];
                    tree.put(cpu, others[cpu]);
                }
                3..=8 => {
                    let microseconds = [0, 5][below(2)];
                    bring(&mut held, &[cpu], Some(microseconds)).unwrap();
                    is_held[cpu] = true;
                }
                _ => {
                    bring(&mut held, &[cpu], None).unwrap();
                    is_held[cpu] = false;
                }
            }
            let says = tree.says();
            for cpu in (0..4).filter(|cpu| !is_held[*cpu]) {
                assert_eq!(says[cpu], others[cpu], "CPU {cpu} after step {step}");
            }
        }
    }
}
