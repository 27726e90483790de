//! A master that runs: its workers, what it waits for, and how one is forked.

mod events;
mod requests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, waitpid};
use wakeful::LoopGroupBuilder;
use wakeful::accept::{Sibling, Siblings};
use wakeful::heartbeat::{Heartbeats, LoopState, Watchdog};

use crate::crew::{Crew, WorkerId};
use crate::listeners::Listeners;
use crate::pid_file::PidFile;
use crate::reports::{Desk, LoopInfo, WorkerInfo, WorkerState};
use crate::settings::Master;
use crate::signals::Signals;
use crate::successor::{Inheritance, Program, Successor, is_successor};
use crate::worker::{Orphans, Worker};
use crate::{signals, sys, systemd};

/// How long processes may take that were told to end at once. Then they are killed.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How often it looks at everything while it cannot wait for events.
const LOOKS: Duration = Duration::from_millis(100);

/// What comes within so much time of a signal to end is no second one: timeout(1) signals a process
/// and its group.
const ONE_SIGNAL: Duration = Duration::from_millis(100);

/// A worker as its master sees it.
#[derive(Debug)]
struct Process {
    id: WorkerId,
    pid: Pid,
    /// Readable when it is dead.
    pidfd: OwnedFd,
    /// A byte comes when it accepts, and the end if it dies before. `None`: either has come.
    ready: Option<OwnedFd>,
    has_accepted: bool,
    /// When it has taken too long to accept. `None`: it has accepted, or is killed.
    start_by: Option<Instant>,
    /// When it has taken too long to end. `None`: nobody has told it to, or it is killed, or has no
    /// limit.
    end_by: Option<Instant>,
    /// It is to open its files anew as soon as it accepts.
    is_to_reopen: bool,
    heartbeats: Heartbeats,
    sibling: Option<Sibling>,
    is_stopped: bool,
    since: SystemTime,
    /// The place of its reports.
    reports_at: usize,
}

/// A dead child, which a debugger has not let go of: how it ended is not known before.
#[derive(Debug)]
struct Unburied {
    pid: Pid,
    /// What it has ended with is this master's, too, if it was to end.
    may_fail: bool,
}

/// What a forked worker takes along.
#[derive(Debug)]
pub(crate) struct New {
    heartbeats: Heartbeats,
    sibling: Option<Sibling>,
    reports_at: usize,
    ready: OwnedFd,
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) crew: Crew,
    processes: Vec<Process>,
    unburied: Vec<Unburied>,
    /// It cannot wait for events, and has said so.
    cannot_wait: bool,
    listeners: Listeners,
    signals: Signals,
    watchdog: Watchdog,
    /// `None`: they cannot be had, and each worker waits for connections at all times.
    siblings: Option<Siblings>,
    desk: Desk,
    /// Have all its first workers accepted?
    is_in_charge: bool,
    is_succeeded: bool,
    /// When the watchdog wants to look.
    look_at: Option<Instant>,
    start_timeout: Duration,
    pre_drain: Duration,
    /// When nobody new is to come in: the workers still accept until then.
    close_at: Option<Instant>,
    drain_timeout: Option<Duration>,
    group: LoopGroupBuilder,
    orphans: Orphans,
    /// Each worker has what is read, and the master the other end: which closes with it.
    lifeline: (OwnedFd, OwnedFd),
    pid_path: Option<PathBuf>,
    pid_file: Option<PidFile>,
    program: Program,
    inheritance: Inheritance,
    successor: Option<Successor>,
    /// Since when all end.
    ending_since: Option<Instant>,
    /// Since when all are to end at once.
    at_once: Option<Instant>,
    /// When the service manager wants to hear of this master, and how often.
    alive_at: Option<(Instant, Duration)>,
    /// How many workers were wanted before all were told to drain.
    before_pause: Option<usize>,
    code: ExitCode,
    /// Why this master ends, if it is for a fault of its own.
    failure: Option<io::Error>,
}

impl Running {
    pub(crate) fn new(
        master: Master,
        program: Program,
        mut inheritance: Inheritance,
    ) -> io::Result<Self> {
        let Master { group, listen, passed, admin, workers, timeout, .. } = master;
        let Master { start_timeout, pre_drain, drain_timeout, orphans, pid_file, .. } = master;
        let is_successor = is_successor();
        let inherited = match std::mem::take(&mut inheritance.listeners) {
            none if none.is_empty() && !is_successor => systemd::kept(),
            inherited => inherited,
        };
        let listeners = Listeners::open(&listen, passed, &admin, inherited)?;
        let lifeline = pipe_with(PipeFlags::CLOEXEC)?;
        // Further ones are there while others drain.
        let siblings = Siblings::new(2 * workers + 8, lifeline.0.try_clone()?);
        let siblings = siblings
            .inspect_err(|error| tracing::warn!(%error, "workers cannot share their turns: a connection may wake several of them"))
            .ok();
        let running = Self {
            crew: Crew::new(workers),
            processes: Vec::new(),
            unburied: Vec::new(),
            cannot_wait: false,
            listeners,
            signals: Signals::new(is_successor)?,
            watchdog: Watchdog::new(timeout)?,
            siblings,
            desk: Desk::new(lifeline.0.try_clone()?)?,
            is_in_charge: false,
            is_succeeded: false,
            look_at: None,
            start_timeout,
            pre_drain,
            close_at: None,
            drain_timeout,
            group,
            orphans,
            lifeline,
            pid_path: pid_file,
            pid_file: None,
            program,
            inheritance,
            successor: None,
            ending_since: None,
            at_once: None,
            alive_at: systemd::watchdog(is_successor).map(|every| (Instant::now(), every)),
            before_pause: None,
            code: ExitCode::SUCCESS,
            failure: None,
        };
        for addr in running.listeners.addrs() {
            tracing::info!(workers, "master listening on {addr}");
        }
        Ok(running)
    }

    /// Nobody is left, and nobody is wanted.
    pub(crate) fn is_over(&self) -> bool {
        self.crew.is_over() && self.successor.is_none()
    }

    /// What this master ends with: no worker is left.
    ///
    /// # Errors
    /// It has ended for a fault of its own.
    pub(crate) fn end_of_all(&mut self) -> io::Result<ExitCode> {
        self.failure.take().map_or(Ok(self.code), Err)
    }

    /// A worker could not be started. It is tried again later. But if it was to be one of the first
    /// workers, all end.
    pub(crate) fn cannot_start(&mut self, place: usize, now: Instant, error: &io::Error) {
        let text = format!("cannot start a worker: {error}");
        if self.crew.cannot_start(place, now) {
            tracing::error!("{text}; the master tries again");
        } else {
            self.fail(io::Error::new(error.kind(), text));
        }
    }

    /// Forks a worker for this place of the crew. In the master it returns `None`.
    ///
    /// # Errors
    /// No process, no descriptor or no memory is left; the process has several threads.
    pub(crate) fn start(&mut self, place: usize, now: Instant) -> io::Result<Option<New>> {
        self.listeners.listen_again();
        let (ready, told) = sys::pipe_of_news()?;
        let heartbeats = self.watchdog.heartbeats_for(&self.group)?;
        let sibling = self.siblings.as_ref().and_then(Siblings::join);
        let reports_at = self.desk.take();
        let pid = match sys::fork() {
            Ok(Some(child)) => child,
            Ok(None) => return Ok(Some(New { heartbeats, sibling, reports_at, ready: told })),
            Err(error) => {
                self.forget(&heartbeats, sibling.as_ref(), reports_at);
                return Err(error);
            }
        };
        // It has not been waited for, so the number is its own.
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                if sys::signal_child(pid, None, Signal::KILL) {
                    let _ = waitpid(Some(pid), WaitOptions::empty());
                } else {
                    self.unburied.push(Unburied { pid, may_fail: false });
                }
                self.forget(&heartbeats, sibling.as_ref(), reports_at);
                return Err(io::Error::new(
                    io::Error::from(error).kind(),
                    format!("pidfd_open: {error}"),
                ));
            }
        };
        let id = self.crew.started(place, now);
        self.processes.push(Process {
            id,
            pid,
            pidfd,
            ready: Some(ready),
            has_accepted: false,
            start_by: now.checked_add(self.start_timeout),
            end_by: None,
            is_to_reopen: false,
            heartbeats,
            sibling,
            is_stopped: false,
            since: SystemTime::now(),
            reports_at,
        });
        // Its loops are going to wake: the watchdog is told.
        self.look_at = Some(now);
        Ok(None)
    }

    /// A worker is dead.
    fn forget(&mut self, heartbeats: &Heartbeats, sibling: Option<&Sibling>, reports_at: usize) {
        self.watchdog.remove(heartbeats);
        self.desk.free(reports_at);
        if let Some((siblings, sibling)) = self.siblings.as_ref().zip(sibling) {
            siblings.remove(sibling);
        }
    }

    /// This process is a worker. What is the master's is closed here.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn into_worker(self, number: usize, new: New) -> io::Result<Worker> {
        // Before the master's are blocked no longer, which is at the end of this function.
        if let Err(error) = signals::survive_requests() {
            tracing::warn!(%error, "cannot catch HUP: it would end this worker");
        }
        let (listeners, admin_listeners) = self.listeners.for_worker()?;
        let (lifeline, _) = self.lifeline;
        let reports = self.desk.reports(new.reports_at);
        Ok(Worker {
            number,
            listeners,
            admin_listeners,
            reports,
            heartbeats: new.heartbeats,
            sibling: new.sibling,
            ready: Some(new.ready),
            lifeline,
            orphans: self.orphans,
        })
    }

    /// It drains, and ends.
    pub(crate) fn drain(&mut self, id: WorkerId, now: Instant) {
        let end_by = self.drained_by(now);
        // When all end, they have been listed already.
        if !self.crew.is_ending() {
            self.list_workers();
        }
        if let Some(process) = self.processes.iter_mut().find(|process| process.id == id) {
            if let Some((siblings, sibling)) = self.siblings.as_ref().zip(process.sibling.as_ref())
                && !self.crew.is_ending()
            {
                // It may be unable to say so itself: others take what comes.
                siblings.is_stopped(sibling);
            }
            process.end_by = end_by;
            process.signal(Signal::TERM);
        }
    }

    /// When who is told to drain now has to have ended.
    fn drained_by(&self, now: Instant) -> Option<Instant> {
        self.drain_timeout.and_then(|limit| now.checked_add(limit))
    }

    fn signal_all(&self, signal: Signal) {
        self.processes.iter().for_each(|process| process.signal(signal));
    }

    /// Lists the workers for the workers, if something has changed, or one of them asks.
    pub(crate) fn list_workers(&mut self) {
        let listed = self.processes.iter().filter_map(|process| {
            let (number, state) = self.crew.place_and_state(process.id)?;
            Some(WorkerInfo {
                number,
                pid: process.pid.as_raw_pid().cast_unsigned(),
                state: if process.is_stopped { WorkerState::Stopped } else { state },
                since: process.since,
                place: process.reports_at,
            })
        });
        let is_served_elsewhere = self.is_succeeded || self.inheritance.is_waited_for();
        let (processes, watchdog) = (&self.processes, &self.watchdog);
        let loops = |worker: &WorkerInfo| {
            let process = processes.iter().find(|process| process.reports_at == worker.place);
            process.map_or_else(Vec::new, |process| process.loops(watchdog))
        };
        self.desk.list(self.is_in_charge, is_served_elsewhere, listed, loops);
    }

    /// Waits until something has happened, and takes note of all that has.
    pub(crate) fn wait_and_see(&mut self) {
        self.wait();
        while let Some((signal, request)) = self.signals.next() {
            self.take(signal, request);
        }
        self.see_who_is_ready();
        self.see_who_is_dead();
        self.see_successor();
        self.bury();
        self.bury_strangers();
        self.look_for_stuck_loops();
        let now = Instant::now();
        self.kill_who_takes_too_long(now);
        self.close_if_due(now);
        systemd::send_what_waits();
        self.listeners.give_what_waits();
        if self.at_once.is_some_and(|since| now >= since + AT_ONCE) {
            // Again after as much time, for one that was not there yet.
            self.at_once = Some(now);
            self.signal_all(Signal::KILL);
            self.successor.iter_mut().for_each(Successor::kill);
        }
        if let Some((at, every)) = &mut self.alive_at
            && now >= *at
        {
            systemd::alive();
            *at = now + *every;
        }
    }

    fn wait(&mut self) {
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let own = [self.signals.as_fd(), self.watchdog.as_fd(), self.desk.as_fd()];
        let mut fds: Vec<_> = own.into_iter().map(readable).collect();
        fds.extend(self.processes.iter().map(|process| readable(process.pidfd.as_fd())));
        let starting = self.processes.iter().filter_map(|process| process.ready.as_ref());
        fds.extend(starting.map(|ready| readable(ready.as_fd())));
        fds.extend(self.successor.iter().flat_map(Successor::news).map(readable));
        let killed_at = self.at_once.map(|since| since + AT_ONCE);
        let alive_at = self.alive_at.map(|(at, _)| at);
        let limits = |process: &Process| [process.start_by, process.end_by];
        let limit = self.processes.iter().flat_map(limits).flatten().min();
        let successor_by = self.successor.as_ref().and_then(|successor| successor.start_by);
        let until = [
            self.crew.next_at(),
            self.close_at,
            self.look_at,
            killed_at,
            alive_at,
            limit,
            successor_by,
            systemd::next_at(),
            self.listeners.next_at(),
        ];
        let left = until
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.saturating_duration_since(Instant::now()));
        let limit = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => self.cannot_wait = false,
            // No memory, or a limit of descriptors that was lowered below those that are open.
            Err(error) => {
                if !std::mem::replace(&mut self.cannot_wait, true) {
                    tracing::error!(
                        %error,
                        "cannot wait for events (is RLIMIT_NOFILE below {}?): looking every {LOOKS:?}",
                        fds.len()
                    );
                }
                thread::sleep(left.map_or(LOOKS, |left| left.min(LOOKS)));
            }
        }
    }
}

impl Process {
    fn loops(&self, watchdog: &Watchdog) -> Vec<LoopInfo> {
        let seen = watchdog.loops(&self.heartbeats).into_iter();
        let loops = seen.map(|seen| match seen {
            LoopState::Awake { at_least, running, work, .. } => {
                LoopInfo::awake(at_least, running, work)
            }
            _ => LoopInfo::asleep(),
        });
        loops.collect()
    }

    fn signal(&self, signal: Signal) {
        sys::signal_child(self.pid, Some(self.pidfd.as_fd()), signal);
    }
}
