//! How often the threads of a process were switched away from a CPU, and who wakes us when they
//! are.

mod events;
mod processes;
mod relief;
mod sampled;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::Pid;

use events::Events;
use processes::Processes;
use relief::{Look, MOST_EVENTS, Means, Relief};
use sampled::Sampled;

/// The processes whose context switches are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// A process, its current descendants, and all threads and children that they start later.
    Process(Pid),
    /// All processes of a cgroup (v2), named by its directory, such as
    /// `/sys/fs/cgroup/system.slice/redis.service`.
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

/// The reason why context switches cannot be counted. The message says what would permit it.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(i32),
    /// There is no such cgroup.
    #[error("{0} is not a cgroup's directory (cgroup.procs: {1})")]
    NoCgroup(PathBuf, #[source] io::Error),
    /// Perf events are refused. A process can be sampled without them, a cgroup cannot.
    #[error("the context switches of a cgroup cannot be counted: {0}. This needs {needed}", needed = needed(.0))]
    Refused(#[source] io::Error),
    /// Anything else.
    #[error("the context switches of process {0} cannot be counted: {1}")]
    Other(i32, #[source] io::Error),
}

/// What perf events need that were refused like that.
pub(crate) fn needed(refusal: &io::Error) -> &'static str {
    match Errno::from_io_error(refusal) {
        Some(Errno::MFILE) => "a higher limit of open files (ulimit -n)",
        Some(Errno::NFILE) => "a higher limit of open files of the system (sysctl fs.file-max)",
        _ => {
            "CAP_PERFMON (systemd: AmbientCapabilities=CAP_PERFMON; Docker: --cap-add PERFMON, and \
             a seccomp profile that allows perf_event_open), or sysctl kernel.perf_event_paranoid=-1"
        }
    }
}

fn is_proc_mounted() -> bool {
    Path::new("/proc/self").exists()
}

fn no_proc() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "/proc is not mounted")
}

/// Counts, and tells when to count.
#[derive(Debug)]
pub(crate) struct Switches {
    target: Target,
    processes: Processes,
    /// The kernel's events: they wake whoever waits. `None`: they are refused, or closed since they
    /// would cost the process too much.
    events: Option<Events>,
    /// By `/proc`: to be looked at in intervals.
    sampled: Option<Sampled>,
    /// Why there were no events from the start.
    refusal: Option<io::Error>,
    relief: Relief,
    look: Look,
    total: u64,
}

impl Switches {
    /// Of all threads but the calling one.
    pub(crate) fn open(target: &Target) -> Result<Self, CountError> {
        let mut processes = match target {
            Target::Process(pid) => Processes::of(pid.as_raw_nonzero().get()),
            Target::Cgroup(folder) => Processes::In(folder.clone()),
        };
        let (events, sampled) = match (open_events(target, &mut processes), target) {
            (Ok(events), _) => (Ok(events), None),
            (Err(error), Target::Cgroup(path)) => {
                return Err(match File::open(path.join("cgroup.procs")) {
                    Ok(_) => CountError::Refused(error),
                    Err(error) => CountError::NoCgroup(path.clone(), error),
                });
            }
            (Err(refusal), Target::Process(pid)) => {
                let pid = pid.as_raw_nonzero().get();
                let sampled = Sampled::of(&mut processes).map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound if is_proc_mounted() => CountError::NoProcess(pid),
                    io::ErrorKind::NotFound => CountError::Other(pid, no_proc()),
                    _ => CountError::Other(pid, error),
                })?;
                (Err(refusal), Some(sampled))
            }
        };
        Ok(Self::new(target.clone(), processes, events, sampled))
    }

    fn new(
        target: Target,
        processes: Processes,
        events: io::Result<Events>,
        sampled: Option<Sampled>,
    ) -> Self {
        let (events, refusal) = match events {
            Ok(events) => (Some(events), None),
            Err(refusal) => (None, Some(refusal)),
        };
        let (relief, look) = (Relief::default(), Look::default());
        Self { target, processes, events, sampled, refusal, relief, look, total: 0 }
    }

    /// Since it was opened. Adds the CPUs that were used since the last count.
    pub(crate) fn count(&mut self, used: &mut BTreeSet<usize>) -> io::Result<u64> {
        let by_events = self.events.as_mut().map(|events| events.count(used)).transpose()?;
        let processes = &mut self.processes;
        let by_proc = self.sampled.as_mut().map(|sampled| sampled.count(processes, used));
        self.total += by_events.or(by_proc).unwrap_or(0);
        self.look = Look {
            by_events: by_events.unwrap_or(0),
            by_proc: by_proc.unwrap_or(0),
            threads: self.sampled.as_ref().map_or(0, Sampled::threads),
        };
        Ok(self.total)
    }

    /// To be called after a count: is there traffic, so that it is counted again in a while, and
    /// nobody has to be woken? Then events are closed if that spares the process something.
    pub(crate) fn settle(&mut self, is_traffic: bool) {
        if self.refusal.is_some() {
            return;
        }
        let means = match (&self.events, &self.sampled) {
            (Some(_), None) => Means::Events,
            (Some(_), Some(_)) => Means::Both,
            (None, _) => Means::Proc,
        };
        match self.relief.next(means, is_traffic, self.look) {
            Means::Events => self.arm(),
            Means::Both => {
                let few = self.events.as_ref().is_some_and(|events| events.len() <= MOST_EVENTS);
                self.sampled = few.then(|| Sampled::of(&mut self.processes).ok()).flatten();
            }
            Means::Proc => self.events = None,
        }
    }

    /// The events count, and nothing else. If they cannot be opened any more (no descriptor is
    /// left), `/proc` tells until they can.
    fn arm(&mut self) {
        if self.events.is_none() {
            let Ok(events) = open_events(&self.target, &mut self.processes) else { return };
            self.events = Some(events);
            if let Some(sampled) = &mut self.sampled {
                // What happened since the last count, before the events were opened.
                self.total += sampled.count(&mut self.processes, &mut BTreeSet::new());
            }
        }
        self.sampled = None;
    }

    /// What becomes readable when there were switches; empty if nothing does.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.events.iter().flat_map(Events::descriptors)
    }

    /// Nothing is to be expected any more from the descriptors of these numbers, in rising order.
    pub(crate) fn remove(&mut self, numbers: &[usize]) -> io::Result<()> {
        let Some(events) = &mut self.events else { return Ok(()) };
        numbers.iter().rev().try_for_each(|number| events.remove(*number))
    }

    /// Nobody is woken by switches: it has to be asked in intervals.
    pub(crate) fn wakes_nobody(&self) -> bool {
        self.events.is_none()
    }

    /// Why `/proc` is read, if events are refused.
    pub(crate) fn refusal(&self) -> Option<&io::Error> {
        self.refusal.as_ref()
    }
}

fn open_events(target: &Target, processes: &mut Processes) -> io::Result<Events> {
    match target {
        Target::Process(_) => Events::of_processes(processes),
        Target::Cgroup(folder) => {
            // Another folder has no such file.
            File::open(folder.join("cgroup.procs"))?;
            Events::of_cgroup(&File::open(folder)?)
        }
    }
}

#[cfg(test)]
mod tests;
