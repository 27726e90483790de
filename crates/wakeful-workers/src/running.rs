//! A master that runs: its workers, what it waits for, and how one is forked.

mod events;
mod process;
mod requests;
mod waiting;

use std::io;
use std::iter;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getppid, waitpid};
use wakeful::LoopGroupBuilder;
use wakeful::accept::{AcceptStrategy, Sibling, Siblings};
use wakeful::heartbeat::{Heartbeats, Watchdog};

use self::process::Process;
use crate::crew::{Crew, WorkerId};
use crate::exec::{self, StartMethod};
use crate::listeners::Listeners;
use crate::pid_file::{self, PidFile};
use crate::port_groups::Inside;
use crate::reports::{Desk, WorkerInfo, WorkerState, since_boot};
use crate::settings::Master;
use crate::signals::{Request, Signals};
use crate::successor::{Inheritance, Program, Successor, is_successor};
use crate::worker::{Orphans, SharedData, Worker};
use crate::{signals, sys, systemd};

/// How long processes may take that were told to end at once. Then they are killed.
const AT_ONCE: Duration = Duration::from_secs(1);

/// What comes within so much time of a signal to end is no second one: timeout(1) signals a process
/// and its group.
const ONE_SIGNAL: Duration = Duration::from_millis(100);

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
    /// Of each worker, if each of them has sockets of its own.
    loops: Option<NonZeroUsize>,
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
    /// When the sockets close: nobody comes in any more. `None`: they are open, or closed.
    closing: Option<Instant>,
    /// When those have to have ended that are told to end.
    ends_by: Option<Instant>,
    drain_timeout: Option<Duration>,
    group: LoopGroupBuilder,
    orphans: Orphans,
    start_method: StartMethod,
    shared_data: SharedData,
    /// Each worker has what is read, and the master the other end: which closes with it.
    lifeline: (OwnedFd, OwnedFd),
    pid_path: Option<PathBuf>,
    pid_file: Option<PidFile>,
    program: Program,
    inheritance: Inheritance,
    /// It is this process's parent until all its workers have ended.
    predecessor: Option<Pid>,
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
        let Master { start_method, shared_data, .. } = master;
        if start_method == StartMethod::Exec {
            exec::is_possible()?;
        }
        let is_successor = is_successor();
        let predecessor = getppid().filter(|_| is_successor);
        if let Some(path) = &pid_file {
            pid_file::is_free(path, predecessor)?;
        }
        let inherited = match std::mem::take(&mut inheritance.listeners) {
            none if none.is_empty() && !is_successor => systemd::kept(),
            inherited => inherited,
        };
        let loops = match master.strategy {
            AcceptStrategy::ReusePort => NonZeroUsize::new(group.loop_count()?),
            _ => None,
        };
        let each = loops.map(|loops| (workers, loops.get()));
        let listeners = Listeners::open(&listen, passed, &admin, inherited, each)?;
        // Before its workers have them.
        inheritance.has_made(&listeners.groups.made_here().collect::<Vec<_>>())?;
        let lifeline = sys::pipe()?;
        let siblings = match loops {
            None => siblings(workers, &lifeline.0)?,
            // The kernel chooses who accepts.
            Some(_) => None,
        };
        let running = Self {
            crew: Crew::new(workers),
            processes: Vec::new(),
            unburied: Vec::new(),
            cannot_wait: false,
            listeners,
            loops,
            signals: Signals::new(is_successor)?,
            watchdog: Watchdog::new(timeout)?,
            siblings,
            desk: Desk::new(sys::duplicate(&lifeline.0)?)?,
            is_in_charge: false,
            is_succeeded: false,
            look_at: None,
            start_timeout,
            pre_drain,
            close_at: None,
            closing: None,
            ends_by: None,
            drain_timeout,
            group,
            orphans,
            start_method,
            shared_data,
            lifeline,
            pid_path: pid_file,
            pid_file: None,
            program,
            inheritance,
            predecessor,
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
        self.crew.is_over() && self.successor.is_none() && self.closing.is_none()
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
        let is_tried_again = self.crew.cannot_start(place, now);
        if self.crew.is_ending() {
            tracing::error!("{text}; clients that wait for it are not served");
        } else if is_tried_again {
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
        // During an upgrade the kernel's list is the new master's. At the end nobody comes in.
        if self.successor.is_none() && !self.crew.is_ending() {
            self.listeners.groups.make(place, self.crew.wanted())?;
        }
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
        let pidfd = match sys::pidfd_of(pid) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                if sys::signal_child(pid, None, Signal::KILL) {
                    let _ = waitpid(Some(pid), WaitOptions::empty());
                } else {
                    self.unburied.push(Unburied { pid, may_fail: false });
                }
                self.forget(&heartbeats, sibling.as_ref(), reports_at);
                return Err(error);
            }
        };
        let id = self.crew.started(place, now);
        self.processes.push(Process {
            id,
            pid,
            pidfd,
            ready: Some(ready),
            has_accepted: false,
            start_by: self.started_by(now),
            end_by: None,
            is_to_reopen: false,
            heartbeats,
            sibling,
            is_stopped: false,
            forked: since_boot(),
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

    /// This process is a worker. What is the master's is closed here. One that is to be executed
    /// returns only by an error.
    ///
    /// # Errors
    /// No descriptors left; the program cannot be executed.
    pub(crate) fn into_worker(self, number: usize, new: New) -> io::Result<Worker> {
        // Before the master's are blocked no longer, which is at the end of this function.
        signals::survive_requests();
        let (listeners, admin_listeners) = self.listeners.for_worker(number)?;
        let (lifeline, _) = self.lifeline;
        let reports = self.desk.reports(new.reports_at);
        let worker = Worker {
            number,
            listeners,
            sockets_each: self.loops,
            admin_listeners,
            reports,
            heartbeats: new.heartbeats,
            sibling: new.sibling,
            ready: Some(new.ready),
            lifeline,
            orphans: self.orphans,
            shared_data: self.shared_data,
        };
        if self.start_method == StartMethod::Exec {
            // Blocked signals would be blocked in the program, too.
            drop(self.signals);
            return Err(exec::execute(&worker, &self.program));
        }
        Ok(worker)
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

    /// When who starts now has to accept.
    fn started_by(&self, now: Instant) -> Option<Instant> {
        // At the end it only serves who waits.
        let drained_by = self.drained_by(now).filter(|_| self.crew.is_ending());
        now.checked_add(self.start_timeout).into_iter().chain(drained_by).min()
    }

    /// When who is told to drain now has to have ended.
    fn drained_by(&self, now: Instant) -> Option<Instant> {
        let limit = || self.drain_timeout.and_then(|limit| now.checked_add(limit));
        self.ends_by.or_else(limit)
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
                forked: process.forked,
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
        let mut requests: Vec<_> = iter::from_fn(|| self.signals.next()).collect();
        // The kernel does not tell their order. Who sends WINCH together with HUP or TTIN wants
        // workers.
        requests.sort_by_key(|(_, request)| *request != Request::DrainWorkers);
        requests.into_iter().for_each(|(signal, request)| self.take(signal, request));
        self.see_who_is_ready();
        self.see_who_is_dead();
        self.see_successor();
        self.bury();
        self.bury_strangers();
        self.look_for_stuck_loops();
        let now = Instant::now();
        self.kill_who_takes_too_long(now);
        self.close_if_due(now);
        self.see_who_waits(now);
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

    /// Does only this master decide which sockets get connections? During an upgrade there are two.
    fn are_sockets_ours(&self) -> bool {
        self.successor.is_none() && !self.inheritance.is_waited_for() && !self.crew.is_ending()
    }

    /// In a place whose sockets leave. Workers of a predecessor may be in any.
    fn inside(&self, place: usize) -> Inside {
        match self.crew.inside(place) {
            Inside::Nobody if self.predecessor.is_some_and(|one| getppid() == Some(one)) => {
                Inside::Draining
            }
            inside => inside,
        }
    }

    /// At sockets whose worker has left.
    fn see_who_waits(&mut self, now: Instant) {
        if self.are_sockets_ours() {
            let mut groups = std::mem::take(&mut self.listeners.groups);
            let waiting = groups.look(now, |place| self.inside(place));
            self.listeners.groups = groups;
            waiting.into_iter().for_each(|place| self.crew.clear(place));
        }
    }
}

/// `None`: they cannot be had.
fn siblings(workers: usize, lifeline: &OwnedFd) -> io::Result<Option<Siblings>> {
    // Further ones are there while others drain.
    let siblings = Siblings::new(2 * workers + 8, sys::duplicate(lifeline)?);
    let siblings = siblings
        .inspect_err(|error| tracing::warn!(%error, "workers cannot coordinate who accepts: a connection may wake several of them"));
    Ok(siblings.ok())
}
