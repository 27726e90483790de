//! Counts how often the threads of a process were switched away from a CPU, and wakes the watcher
//! when they are.

mod events;
mod missed;
mod processes;
mod relief;
mod retry;
mod sampled;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, getpid, getrlimit};

use events::{Events, are_too_many};
use missed::Missed;
use processes::Processes;
use relief::{Look, MOST_EVENTS, Means, Relief};
use retry::Retry;
use sampled::Sampled;

use crate::fork_gate::Places;

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
    /// The present folder of a cgroup. A restarted service has another folder. `None` for a
    /// process, and while there is no folder.
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

/// What perf events need, after they were refused with this error.
pub(crate) fn needed(refusal: &io::Error) -> &'static str {
    match Errno::from_io_error(refusal) {
        Some(Errno::MFILE) => "a higher limit of open files (ulimit -n)",
        Some(Errno::NFILE) => "a higher limit of open files of the system (sysctl fs.file-max)",
        _ => {
            "CAP_PERFMON (systemd: AmbientCapabilities=CAP_PERFMON; Docker: --cap-add PERFMON, and \
             a seccomp profile that allows perf_event_open), or sysctl kernel.perf_event_paranoid=0"
        }
    }
}

fn is_proc_mounted() -> bool {
    Path::new("/proc/self").exists()
}

fn no_proc() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "/proc is not mounted")
}

/// Counts switches, and tells when to count.
#[derive(Debug)]
pub(crate) struct Switches {
    target: Target,
    processes: Processes,
    /// Where a forked child finds the descriptors of the events.
    places: Places,
    /// The kernel's events, which wake the watcher. `None`: they are refused, or closed because
    /// they would cost the process too much.
    events: Option<Events>,
    /// The counts in `/proc`, which must be read at intervals.
    sampled: Option<Sampled>,
    /// Why there are no events, and never will be.
    refusal: Option<io::Error>,
    /// The last reason why nothing could be read.
    shortage: Option<io::Error>,
    /// Whether the events miss switches of a process.
    missed: Missed,
    retry: Retry,
    relief: Relief,
    look: Look,
    total: u64,
}

impl Switches {
    /// Counts all threads except the calling one. The numbers of the events' descriptors are in
    /// `places`, as far as there is room.
    pub(crate) fn open(target: &Target, places: Places) -> Result<Self, CountError> {
        let mut processes = match target {
            Target::Process(pid) => Processes::of(pid.as_raw_nonzero().get()),
            Target::Cgroup(folder) => Processes::In(folder.clone()),
        };
        let most = most_events(target).unwrap_or(usize::MAX);
        let opened = open_events(target, &mut processes, most, places);
        let (events, sampled) = match (opened, target) {
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
        let mut opened = Self { places, ..Self::new(target.clone(), processes, events, sampled) };
        if opened.refusal.take_if(|error| are_too_many(error)).is_some() {
            opened.retry.failed(Instant::now());
        }
        Ok(opened)
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
        Self {
            target,
            processes,
            places: &[],
            events,
            sampled,
            refusal,
            shortage: None,
            missed: Missed::default(),
            retry: Retry::default(),
            relief: Relief::default(),
            look: Look::default(),
            total: 0,
        }
    }

    /// Counts the switches since it was opened. Adds the CPUs that were used since the last count.
    pub(crate) fn count(&mut self, used: &mut BTreeSet<usize>) -> io::Result<u64> {
        let by_events = self.events.as_mut().map(|events| events.count(used)).transpose()?;
        let processes = &mut self.processes;
        let by_proc = self.sampled.as_mut().map(|sampled| sampled.count(processes, used));
        let by_proc = by_proc.transpose();
        let by_proc = by_proc.unwrap_or_else(|error| {
            if by_events.is_none() {
                self.shortage = Some(error);
            }
            None
        });
        self.total += by_events.or(by_proc).unwrap_or(0);
        self.look = Look {
            by_events: by_events.unwrap_or(0),
            by_proc: by_proc.unwrap_or(0),
            threads: self.sampled.as_ref().map_or(0, Sampled::threads),
        };
        Ok(self.total)
    }

    /// Called after a count. `is_traffic` means that the next count follows soon, and no wake is
    /// needed. Then events are closed if that saves the process some time.
    pub(crate) fn settle(&mut self, is_traffic: bool) {
        if self.refusal.is_some() {
            return;
        }
        if self.has_no_event() {
            self.events = None;
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

    /// Only the events count from now on. If they cannot be opened again (no descriptor is left),
    /// or would be too many, `/proc` counts until they can.
    fn arm(&mut self) {
        if self.events.is_none() {
            let Some(events) = self.reopen() else {
                if self.sampled.is_none() {
                    match Sampled::of(&mut self.processes) {
                        Ok(sampled) => self.sampled = Some(sampled),
                        Err(error) => self.shortage = Some(error),
                    }
                }
                return;
            };
            self.events = Some(events);
            if let Some(sampled) = &mut self.sampled {
                // These are the switches since the last count, before the events were opened.
                let count = sampled.count(&mut self.processes, &mut BTreeSet::new());
                self.total += count.unwrap_or(0);
            }
        }
        self.sampled = None;
    }

    /// `None`: that fails, or has failed a short time ago.
    fn reopen(&mut self) -> Option<Events> {
        let now = Instant::now();
        if !self.retry.is_due(now) {
            return None;
        }
        let (target, processes) = (&self.target, &mut self.processes);
        let most = most_events(target).unwrap_or(MOST_EVENTS);
        let events = open_events(target, processes, most, self.places).ok();
        match events {
            Some(_) => self.retry = Retry::default(),
            None => self.retry.failed(now),
        }
        events
    }

    /// Called from time to time, after a count, with the CPUs that are online. If other CPUs were
    /// online when the events were opened, the events are opened again: there is none for a CPU
    /// that has come since, and an event does not return with a CPU that was away.
    pub(crate) fn follow_cpus(&mut self, online: &[usize]) {
        if self.events.as_ref().is_some_and(|events| !events.are_of(online)) {
            self.events = None;
            self.arm();
        }
    }

    /// Called from time to time, after a count. If the events have missed many switches since the
    /// last call, they are opened again.
    pub(crate) fn follow_children(&mut self) {
        if self.events.is_none() || matches!(self.target, Target::Cgroup(_)) {
            self.missed = Missed::default();
        } else if self.missed.look(&mut self.processes, self.total) {
            self.events = None;
            self.arm();
        }
    }

    /// The descriptors that become readable when there were switches. If there are none, nothing
    /// becomes readable.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.events.iter().flat_map(Events::descriptors)
    }

    /// The descriptors with these numbers, in ascending order, will report nothing more.
    pub(crate) fn remove(&mut self, numbers: &[usize]) -> io::Result<()> {
        let Some(events) = &mut self.events else { return Ok(()) };
        numbers.iter().rev().try_for_each(|number| events.remove(*number))
    }

    /// Do switches wake nobody, so that counts must be read at intervals?
    pub(crate) fn wakes_nobody(&self) -> bool {
        self.events.is_none() || self.has_no_event()
    }

    /// Have all events been removed? The kernel ends the events of a process that executes a
    /// program with other rights (a set-user-ID one, or one with file capabilities), although the
    /// process lives on.
    fn has_no_event(&self) -> bool {
        self.events.as_ref().is_some_and(|events| events.len() == 0)
    }

    /// The last reason why a count found nothing, although there may have been switches.
    pub(crate) fn shortage(&self) -> Option<&io::Error> {
        self.shortage.as_ref()
    }

    /// Why `/proc` is read, if events are refused.
    pub(crate) fn refusal(&self) -> Option<&io::Error> {
        self.refusal.as_ref()
    }
}

/// How many events a process that watches itself may have: it needs most of its descriptors for
/// something else. `None` for other targets.
fn most_events(target: &Target) -> Option<usize> {
    let is_own = matches!(target, Target::Process(pid) if *pid == getpid());
    is_own.then(|| {
        let descriptors = getrlimit(Resource::Nofile).current;
        let quarter = descriptors.and_then(|most| usize::try_from(most / 4).ok());
        quarter.map_or(MOST_EVENTS, |quarter| quarter.min(MOST_EVENTS))
    })
}

/// Opens events, up to a limit for a process. A cgroup needs few: one for each CPU.
fn open_events(
    target: &Target,
    processes: &mut Processes,
    most: usize,
    places: Places,
) -> io::Result<Events> {
    match target {
        Target::Process(_) => Events::of_processes(processes, most, places),
        Target::Cgroup(folder) => {
            // Another folder does not have such a file.
            File::open(folder.join("cgroup.procs"))?;
            Events::of_cgroup(&File::open(folder)?, places)
        }
    }
}

#[cfg(test)]
mod tests;
