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
use crate::container::Place;
use crate::crew::{Crew, WorkerId};
use crate::exec::{self, StartMethod};
use crate::listeners::Listeners;
use crate::pid_file::{self, PidFile};
use crate::port_groups::Inside;
use crate::reports::{Desk, WorkerInfo, WorkerState, since_boot};
use crate::settings::Master;
use crate::signals::{Request, Signals};
use crate::successor::{InCharge, Inheritance, Program, Successor};
use crate::worker::{Orphans, SharedData, Worker};
use crate::{log, signals, sys, systemd};

/// How long processes that were told to end at once may take before they are killed.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A signal to end within this time after the first one does not count as a second: timeout(1)
/// signals both a process and its group.
const ONE_SIGNAL: Duration = Duration::from_millis(100);

/// How often a worker looks for connections that another master's workers were woken for.
const LOOKS_FOR_OTHERS: Duration = Duration::from_secs(1);

/// A dead child that a debugger still holds, so that its status is not known yet.
#[derive(Debug)]
struct Unburied {
    pid: Pid,
    /// Whether the child's failure makes this master fail, too, because the child was told to end.
    may_fail: bool,
}

/// What a forked worker keeps from the master.
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
    /// The master cannot wait for events, and has logged that.
    cannot_wait: bool,
    listeners: Listeners,
    /// The number of loops of each worker, if each loop has its own sockets.
    loops: Option<NonZeroUsize>,
    signals: Signals,
    place: Place,
    watchdog: Watchdog,
    /// `None`: no shared memory could be had, so each worker waits for connections at all times.
    siblings: Option<Siblings>,
    desk: Desk,
    /// Whether all its first workers have accepted.
    is_in_charge: bool,
    /// The new master that has taken over from this one.
    succeeded_by: Option<InCharge>,
    /// When a worker looks next for a connection that another master's workers were woken for.
    others_looked_for_at: Option<Instant>,
    /// When the watchdog wants to look next.
    look_at: Option<Instant>,
    /// When the master last ended a wait. Limits are compared with this time, and not with a later
    /// one: only the next wait puts them off if the master is paused meanwhile.
    looked_at: Instant,
    start_timeout: Duration,
    pre_drain: Duration,
    /// When to keep new clients out. The workers accept until then. If none is left, it is due at
    /// once.
    close_at: Option<Instant>,
    /// When the sockets close, after clients are kept out. `None`: they are open, or closed.
    closing: Option<Instant>,
    /// When the processes must have ended that were told to end.
    ends_by: Option<Instant>,
    drain_timeout: Option<Duration>,
    group: LoopGroupBuilder,
    orphans: Orphans,
    start_method: StartMethod,
    shared_data: SharedData,
    /// Each worker has the reading end of a pipe. The master has the other end, which closes when
    /// the master is gone.
    lifeline: (OwnedFd, OwnedFd),
    pid_path: Option<PathBuf>,
    pid_file: Option<PidFile>,
    program: Program,
    inheritance: Inheritance,
    /// The predecessor is this process's parent until all its workers have ended, or it is killed.
    predecessor: Option<Pid>,
    successor: Option<Successor>,
    /// Since when the workers and the master end.
    ending_since: Option<Instant>,
    /// Since when they must end at once.
    at_once: Option<Instant>,
    /// When the service manager wants the next sign of life from this master, and how often it
    /// wants one.
    alive_at: Option<(Instant, Duration)>,
    /// How many workers were wanted before all were told to drain.
    before_pause: Option<usize>,
    code: ExitCode,
    /// The error with which this master ends, if it has failed itself.
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
        let predecessor = inheritance.predecessor;
        let is_successor = predecessor.is_some();
        let place = Place::of_this(is_successor);
        if let Some(path) = &pid_file {
            pid_file::is_free(path, predecessor)?;
        }
        let inherited = match std::mem::take(&mut inheritance.listeners) {
            none if none.is_empty() && !is_successor => systemd::kept(listen.iter().chain(&admin)),
            inherited => inherited,
        };
        let loops = match master.strategy {
            AcceptStrategy::ReusePort => NonZeroUsize::new(group.loop_count()?),
            _ => None,
        };
        // Each worker needs as many loops as there are sockets for it, also if the number of CPUs
        // changes.
        let group = match loops {
            Some(loops) => group.loops(loops.get()),
            None => group,
        };
        let each = loops.map(|loops| (workers, loops.get()));
        let listeners = Listeners::open(&listen, passed, &admin, inherited, each)?;
        // The predecessor gets copies before any worker has these sockets.
        inheritance.has_made(&listeners.groups.made_here().collect::<Vec<_>>())?;
        let lifeline = sys::pipe()?;
        let siblings = match loops {
            None => siblings(workers, &lifeline.0)?,
            // If each loop has its own socket, the kernel chooses which worker accepts.
            Some(_) => None,
        };
        let running = Self {
            crew: Crew::new(workers),
            processes: Vec::new(),
            unburied: Vec::new(),
            cannot_wait: false,
            listeners,
            loops,
            signals: Signals::new(is_successor, place)?,
            place,
            watchdog: Watchdog::new(timeout)?,
            siblings,
            desk: Desk::new(sys::duplicate(&lifeline.0)?)?,
            is_in_charge: false,
            succeeded_by: None,
            others_looked_for_at: None,
            look_at: None,
            looked_at: Instant::now(),
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
            log!(info, workers, "master listening on {addr}");
        }
        Ok(running)
    }

    /// Is no process left, and none wanted? Clients may still wait at sockets that are to close.
    pub(crate) fn is_over(&self) -> bool {
        let are_sockets_open = self.close_at.is_some() || self.closing.is_some();
        self.crew.is_over() && self.successor.is_none() && !are_sockets_open
    }

    /// The exit code of this master, when no worker is left.
    ///
    /// # Errors
    /// The master itself has failed.
    pub(crate) fn end_of_all(&mut self) -> io::Result<ExitCode> {
        // They may have come since the last look.
        while let Some((signal, request)) = self.signals.next() {
            self.pass_on_to_successor(signal, request);
        }
        self.failure.take().map_or(Ok(self.code), Err)
    }

    /// Called when a worker could not be started. It is tried again later. But if it should have
    /// been one of the first workers, all end.
    pub(crate) fn cannot_start(&mut self, place: usize, now: Instant, error: &io::Error) {
        let text = format!("cannot start a worker: {error}");
        let is_tried_again = self.crew.cannot_start(place, now);
        if self.crew.is_ending() {
            log!(error, "{text}; clients that wait for it are not served");
        } else if is_tried_again {
            log!(error, "{text}; the master tries again");
        } else {
            self.fail(io::Error::new(error.kind(), text));
        }
    }

    /// Forks a worker for this place of the crew. In the master it returns `None`.
    ///
    /// # Errors
    /// No process, no descriptor or no memory is left; the process has several threads.
    pub(crate) fn start(&mut self, place: usize, now: Instant) -> io::Result<Option<New>> {
        self.listeners.listen_again_at(place);
        // During an upgrade the new master owns the kernel's list. At the end no more clients come
        // in.
        if self.successor.is_none() && !self.crew.is_ending() {
            self.listeners.groups.make(place, self.crew.wanted())?;
        }
        let (ready, told) = sys::pipe_of_news()?;
        let heartbeats = self.watchdog.heartbeats_for(&self.group)?;
        let sibling = self.siblings.as_ref().and_then(Siblings::join);
        let reports_at = self.desk.take();
        let pid = match sys::fork() {
            Ok(Some(child)) => child,
            Ok(None) => {
                log::is_no_master();
                return Ok(Some(New { heartbeats, sibling, reports_at, ready: told }));
            }
            Err(error) => {
                self.forget(&heartbeats, sibling.as_ref(), reports_at);
                return Err(error);
            }
        };
        // The process has not been waited for, so the number is still its own.
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
        // The loops of the new worker will wake, so the watchdog must look.
        self.look_at = Some(now);
        if self.inheritance.is_waited_for() {
            // If this master is killed before it takes over, its workers must know that they are
            // not needed.
            self.list_workers();
        }
        Ok(None)
    }

    /// Forgets a dead worker.
    fn forget(&mut self, heartbeats: &Heartbeats, sibling: Option<&Sibling>, reports_at: usize) {
        self.watchdog.remove(heartbeats);
        self.desk.free(reports_at);
        if let Some((siblings, sibling)) = self.siblings.as_ref().zip(sibling) {
            siblings.remove(sibling);
        }
    }

    /// Turns this process into a worker, and closes what belongs to the master. If the worker
    /// executes the program, this returns only with an error.
    ///
    /// # Errors
    /// No descriptors left; the program cannot be executed.
    pub(crate) fn into_worker(self, number: usize, new: New) -> io::Result<Worker> {
        // This must come before the signals are unblocked, which happens at the end of this
        // function.
        signals::survive_requests();
        let (listeners, admin_listeners) = self.listeners.for_worker(number)?;
        systemd::close();
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
            // Signals that are blocked here would stay blocked in the program.
            drop(self.signals);
            return Err(exec::execute(&worker, &self.program));
        }
        Ok(worker)
    }

    /// Makes a worker drain, and end.
    pub(crate) fn drain(&mut self, id: WorkerId, now: Instant) {
        let end_by = self.drained_by(now);
        // When all workers end, they have been listed already.
        if !self.crew.is_ending() {
            self.list_workers();
        }
        if let Some(process) = self.processes.iter_mut().find(|process| process.id == id) {
            if let Some((siblings, sibling)) = self.siblings.as_ref().zip(process.sibling.as_ref())
                && !self.crew.is_ending()
            {
                // A stopped worker cannot report that itself. Its siblings take the connections.
                siblings.is_stopped(sibling);
            }
            process.end_by = end_by;
            process.signal(Signal::TERM);
        }
    }

    /// When a worker that starts now must accept.
    fn started_by(&self, now: Instant) -> Option<Instant> {
        // At the end such a worker only serves clients that wait.
        let drained_by = self.drained_by(now).filter(|_| self.crew.is_ending());
        now.checked_add(self.start_timeout).into_iter().chain(drained_by).min()
    }

    /// When a worker that is told to drain now must have ended.
    fn drained_by(&self, now: Instant) -> Option<Instant> {
        let limit = || self.drain_timeout.and_then(|limit| now.checked_add(limit));
        self.ends_by.or_else(limit)
    }

    fn signal_all(&self, signal: Signal) {
        self.processes.iter().for_each(|process| process.signal(signal));
    }

    /// Writes the list of workers, if something has changed, or a worker asks for it.
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
        let is_served_elsewhere = self.succeeded_by.is_some() || self.inheritance.is_waited_for();
        let (processes, watchdog) = (&self.processes, &self.watchdog);
        let loops = |worker: &WorkerInfo| {
            let process = processes.iter().find(|process| process.reports_at == worker.place);
            process.map_or_else(Vec::new, |process| process.loops(watchdog))
        };
        self.desk.list(self.is_in_charge, is_served_elsewhere, listed, loops);
    }

    /// Waits until something has happened, and handles everything that has.
    pub(crate) fn wait_and_see(&mut self) {
        self.wait();
        let mut requests: Vec<_> = iter::from_fn(|| self.signals.next()).collect();
        // The kernel does not report their order. An operator who sends WINCH together with HUP or
        // TTIN wants workers.
        requests.sort_by_key(|(_, request)| *request != Request::DrainWorkers);
        requests.into_iter().for_each(|(signal, request)| self.take(signal, request));
        self.see_who_is_ready();
        self.see_who_is_dead();
        self.see_successor();
        self.bury();
        self.bury_strangers();
        self.look_for_stuck_loops();
        self.kill_who_takes_too_long();
        let now = Instant::now();
        self.close_if_due(now);
        self.see_who_waits(now);
        self.look_for_others(now);
        systemd::send_what_waits();
        self.listeners.give_what_waits();
        if self.at_once.is_some_and(|since| self.looked_at >= since + AT_ONCE) {
            // The kill is repeated after the same time, for processes that did not exist yet.
            self.at_once = Some(self.looked_at);
            self.signal_all(Signal::KILL);
            self.successor.iter_mut().for_each(Successor::remind);
        }
        if let Some((at, every)) = &mut self.alive_at
            && now >= *at
        {
            *at = now + if systemd::alive() { *every } else { systemd::AGAIN.min(*every) };
        }
    }

    /// Does only this master decide which sockets get connections? During an upgrade there are two
    /// masters.
    fn are_sockets_ours(&self) -> bool {
        self.successor.is_none() && !self.inheritance.is_waited_for() && !self.crew.is_ending()
    }

    /// What is in a place whose sockets leave. Workers of a predecessor may be in any place.
    fn inside(&self, place: usize) -> Inside {
        match self.crew.inside(place) {
            Inside::Nobody if self.is_predecessor_there() => Inside::Draining,
            inside => inside,
        }
    }

    fn is_predecessor_there(&self) -> bool {
        self.predecessor.is_some_and(|one| getppid() == Some(one))
    }

    /// While there are two masters, the kernel may wake a worker of the other one for a connection
    /// that it does not take because it is full, or ends. That one does not know the workers of
    /// this master. So one of them looks now and then, and once when the other master has gone.
    fn look_for_others(&mut self, now: Instant) {
        let Some(siblings) = &self.siblings else { return };
        let are_two = self.successor.is_some() || self.is_predecessor_there();
        let is_due = self.others_looked_for_at.is_some_and(|at| at <= now);
        if is_due {
            siblings.look_for_connections();
        }
        if is_due || self.others_looked_for_at.is_none() {
            self.others_looked_for_at = are_two.then(|| now + LOOKS_FOR_OTHERS);
        }
    }

    /// Handles clients that wait at sockets whose worker has left.
    fn see_who_waits(&mut self, now: Instant) {
        if self.are_sockets_ours() {
            let mut groups = std::mem::take(&mut self.listeners.groups);
            let waiting = groups.look(now, |place| self.inside(place));
            self.listeners.groups = groups;
            waiting.into_iter().for_each(|place| self.crew.clear(place));
        }
    }
}

/// `None`: the shared memory cannot be had.
fn siblings(workers: usize, lifeline: &OwnedFd) -> io::Result<Option<Siblings>> {
    // There are more workers than wanted while others drain.
    let siblings = Siblings::new(2 * workers + 8, sys::duplicate(lifeline)?);
    let siblings = siblings
        .inspect_err(|error| log!(warn, %error, "workers cannot coordinate who accepts: a connection may wake several of them"));
    Ok(siblings.ok())
}

#[cfg(test)]
mod tests;
