//! How often the threads of a process were switched away from a CPU, and who wakes us when they
//! are.

mod events;
mod processes;
mod sampled;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::process::Pid;

use events::Events;
use sampled::Sampled;

/// Whose switches are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// A process, its descendants of that moment, and all threads and children that these start
    /// from then on.
    Process(Pid),
    /// All processes of a cgroup (v2): the folder, as `/sys/fs/cgroup/system.slice/redis.service`.
    Cgroup(PathBuf),
}

impl Target {
    /// Which folder a cgroup's is now: that of a service is another one after a restart. `None` for
    /// a process, and while there is no folder.
    pub(crate) fn folder(&self) -> Option<(u64, u64)> {
        let Self::Cgroup(path) = self else { return None };
        let folder = path.metadata().ok()?;
        Some((folder.dev(), folder.ino()))
    }
}

/// Why switches cannot be counted. The text says what permits it.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(i32),
    /// There is no such cgroup.
    #[error("{0} is no folder of a cgroup: {1}")]
    NoCgroup(PathBuf, #[source] io::Error),
    /// Perf events are refused. A process can be sampled without them, a cgroup cannot.
    #[error(
        "the context switches of a cgroup cannot be counted: {0}. It takes CAP_PERFMON (systemd: AmbientCapabilities=CAP_PERFMON; Docker: \
         --cap-add PERFMON, and a seccomp profile that allows perf_event_open), or sysctl kernel.perf_event_paranoid=-1"
    )]
    Refused(#[source] io::Error),
    /// Anything else.
    #[error("the context switches of process {0} cannot be counted: {1}")]
    Other(i32, #[source] io::Error),
}

/// Counts, and tells when to count.
#[derive(Debug)]
pub(crate) enum Switches {
    /// By the kernel's events: it wakes whoever waits.
    Events(Events),
    /// By `/proc`, since events are refused: to be looked at in intervals.
    Sampled(Sampled),
}

impl Switches {
    /// Of all threads but the calling one.
    pub(crate) fn open(target: &Target) -> Result<Self, CountError> {
        match target {
            Target::Cgroup(path) => {
                let folder = File::open(path.join("cgroup.procs"))
                    .and_then(|_| File::open(path))
                    .map_err(|error| CountError::NoCgroup(path.clone(), error))?;
                Events::of_cgroup(&folder).map(Self::Events).map_err(CountError::Refused)
            }
            Target::Process(pid) => {
                let pid = pid.as_raw_nonzero().get();
                match Events::of_process(pid) {
                    Ok(events) => Ok(Self::Events(events)),
                    Err(_) => Sampled::of_process(pid).map(Self::Sampled).map_err(|error| {
                        match error.kind() {
                            io::ErrorKind::NotFound => CountError::NoProcess(pid),
                            _ => CountError::Other(pid, error),
                        }
                    }),
                }
            }
        }
    }

    /// Since some fixed moment. What a sampled thread did is gone with the thread. Adds the CPUs
    /// that were used since the last count.
    pub(crate) fn count(&mut self, used: &mut BTreeSet<usize>) -> io::Result<u64> {
        match self {
            Self::Events(events) => events.count(used),
            Self::Sampled(sampled) => Ok(sampled.count(used)),
        }
    }

    /// What becomes readable when there were switches; empty if nothing does.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let events = match self {
            Self::Events(events) => Some(events),
            Self::Sampled(_) => None,
        };
        events.into_iter().flat_map(Events::descriptors)
    }

    /// Nothing is to be expected any more from the descriptors of these numbers, in rising order.
    pub(crate) fn remove(&mut self, numbers: &[usize]) -> io::Result<()> {
        match self {
            Self::Events(events) => {
                numbers.iter().rev().try_for_each(|number| events.remove(*number))
            }
            Self::Sampled(_) => Ok(()),
        }
    }

    /// It has to be asked in intervals.
    pub(crate) fn is_sampled(&self) -> bool {
        matches!(self, Self::Sampled(_))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::machine::online_cpus;

    /// Counts a thread that sleeps 100 times, and a thread that it starts meanwhile.
    fn counted(open: impl FnOnce(i32) -> io::Result<Switches>) -> io::Result<u64> {
        let (go, wait) = mpsc::channel::<()>();
        let (ended, end) = mpsc::channel::<()>();
        let sleeper = thread::spawn(move || {
            wait.recv().unwrap();
            let sleeps = || (0..50).for_each(|_| thread::sleep(Duration::from_micros(100)));
            let child = thread::spawn(sleeps);
            sleeps();
            child.join().unwrap();
            ended.send(()).unwrap();
            // Its count is there as long as it is.
            let _ = wait.recv();
        });
        let mut switches = open(std::process::id().try_into().unwrap())?;
        let before = switches.count(&mut BTreeSet::new())?;
        go.send(()).unwrap();
        end.recv().unwrap();
        let mut used = BTreeSet::new();
        let counted = switches.count(&mut used)?.saturating_sub(before);
        let online: BTreeSet<usize> = online_cpus()?.into_iter().collect();
        assert!(!used.is_empty() && used.is_subset(&online), "{used:?}");
        drop(go);
        sleeper.join().unwrap();
        Ok(counted)
    }

    #[test]
    fn events_count_the_threads_that_there_are_and_their_children() {
        match counted(|pid| Events::of_process(pid).map(Switches::Events)) {
            Ok(switches) => assert!(switches >= 100, "{switches}"),
            Err(error) => eprintln!("skipped: {error}"),
        }
    }

    #[test]
    fn proc_counts_the_threads_that_there_are() {
        let count = || counted(|pid| Sampled::of_process(pid).map(Switches::Sampled)).unwrap();
        // Another test's thread that ends meanwhile takes its count along.
        let counts: Vec<u64> = (0..10).map(|_| count()).collect();
        assert!(counts.iter().any(|switches| *switches >= 50), "{counts:?}");
    }

    #[test]
    fn a_folder_that_was_removed_and_made_again_is_another_one() {
        let folder = std::env::temp_dir().join(format!("wakeful-group-{}", std::process::id()));
        let target = Target::Cgroup(folder.clone());
        assert_eq!(target.folder(), None);
        std::fs::create_dir(&folder).unwrap();
        let first = target.folder();
        assert!(first.is_some() && target.folder() == first);
        // Kept open, its number is not given to another one.
        let kept = File::open(&folder).unwrap();
        std::fs::remove_dir(&folder).unwrap();
        assert_eq!(target.folder(), None);
        std::fs::create_dir(&folder).unwrap();
        assert!(target.folder().is_some_and(|second| Some(second) != first));
        std::fs::remove_dir(&folder).unwrap();
        drop(kept);
        let pid = rustix::process::getpid();
        assert_eq!(Target::Process(pid).folder(), None);
    }

    #[test]
    fn who_is_not_there_is_an_error_that_says_so() {
        // Above the kernel's largest.
        let nobody = Target::Process(Pid::from_raw(i32::MAX).unwrap());
        assert!(matches!(Switches::open(&nobody), Err(CountError::NoProcess(i32::MAX))));
        let nowhere = Target::Cgroup("/nonexistent".into());
        assert!(matches!(Switches::open(&nowhere), Err(CountError::NoCgroup(..))));
        let no_cgroup = Target::Cgroup("/proc".into());
        assert!(matches!(Switches::open(&no_cgroup), Err(CountError::NoCgroup(..))));
    }
}
