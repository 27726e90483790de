//! Handles events of a master's workers and of its successor.

use std::fs;
use std::io;
use std::process::ExitCode;
use std::time::Instant;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, waitid, waitpid,
};

use super::process::Process;
use super::{Running, Unburied};
use crate::crew::Loss;
use crate::pid_file::{self, PidFile};
use crate::successor::{Progress, Successor};
use crate::sys::{self, End, News, end_of};
use crate::systemd;

impl Running {
    pub(super) fn see_who_is_ready(&mut self) {
        let (mut completes, mut accepts) = (false, false);
        for process in &mut self.processes {
            let Some(ready) = &process.ready else { continue };
            let news = sys::news(ready);
            if news == News::NotYet {
                continue;
            }
            process.ready = None;
            if news == News::End {
                continue;
            }
            process.has_accepted = true;
            process.start_by = None;
            log!(info, "worker {} accepts", process.pid.as_raw_pid());
            if process.is_to_reopen {
                process.signal(Signal::HUP);
            }
            if self.crew.drains(process.id) {
                // While it started, another handler of its program may have taken the first one.
                process.signal(Signal::TERM);
            }
            completes |= self.crew.ready(process.id);
            accepts = true;
        }
        if accepts {
            self.admit_who_accepts();
        }
        if completes {
            self.begin();
        }
    }

    /// Called when all workers accept that are wanted, for the first time or after a replacement.
    pub(super) fn begin(&mut self) {
        if let Err(error) = self.take_charge() {
            self.fail(error);
        }
    }

    /// Opens the sockets of workers that accept, so that they get connections.
    pub(super) fn admit_who_accepts(&mut self) {
        if self.are_sockets_ours() {
            let places = (0..self.crew.wanted()).filter(|place| self.crew.accepts(*place));
            places.for_each(|place| self.listeners.groups.admit(place));
        }
    }

    /// Sends clients elsewhere that would go to dead workers. While there was a successor, this was
    /// not done.
    fn avoid_who_has_died(&mut self) {
        let places = (0..self.crew.wanted()).filter(|place| !self.crew.accepts(*place));
        places.for_each(|place| self.listeners.groups.avoid(place));
    }

    /// Called when all workers accept. From now on this master is in charge.
    ///
    /// # Errors
    /// The pid file cannot be written.
    fn take_charge(&mut self) -> io::Result<()> {
        if let (Some(path), None) = (&self.pid_path, &self.pid_file) {
            pid_file::is_free(path, self.predecessor)?;
            self.pid_file = Some(PidFile::write(path)?);
        }
        self.listeners.take_over();
        if self.successor.is_none() {
            self.listeners.groups.take_charge(self.crew.wanted(), Instant::now());
        }
        self.is_in_charge = true;
        // This master's workers must be able to answer operators before the predecessor ends its
        // own.
        self.list_workers();
        systemd::ready();
        // This comes first, because at the next call the predecessor reports that it ends.
        log!(info, workers = self.crew.wanted(), "all workers accept");
        self.inheritance.ready();
        Ok(())
    }

    /// Tells the service manager that a reload has ended without replacing all workers. Before the
    /// first workers accept, the service is not ready.
    pub(super) fn reload_is_over(&self) {
        if self.is_in_charge {
            systemd::ready();
        }
    }

    pub(super) fn kill_who_takes_too_long(&mut self) {
        let (now, limit) = (self.looked_at, self.start_timeout);
        let is_late = |by: &Option<Instant>| by.is_some_and(|by| by <= now);
        for process in self.processes.iter_mut().filter(|process| is_late(&process.start_by)) {
            process.start_by = None;
            let pid = process.pid.as_raw_pid();
            if self.crew.is_ending() {
                log!(error, "killing worker {pid}: it does not accept yet, and this master ends");
            } else {
                log!(
                    error,
                    "killing worker {pid}: it does not accept connections after {limit:?}, the \
                     start timeout"
                );
            }
            process.signal(Signal::KILL);
        }
        for process in self.processes.iter_mut().filter(|process| is_late(&process.end_by)) {
            process.end_by = None;
            let (pid, limit) = (process.pid.as_raw_pid(), self.drain_timeout.unwrap_or_default());
            log!(
                error,
                "killing worker {pid}: it has not ended after {limit:?}, the drain timeout"
            );
            process.signal(Signal::KILL);
        }
        if let Some(successor) = self.successor.as_mut().filter(|new| is_late(&new.start_by)) {
            let pid = successor.process();
            // First it ends its own workers. If it were killed before, nobody would end those that
            // are stopped or blocked.
            if let Some(patience) = successor.patience_after_next_term() {
                let what = match successor.is_given_up() {
                    false => "has not taken over in time: it is told to end",
                    true => "has not ended in time: it is told to end at once",
                };
                log!(error, "process {pid}, the new master, {what}");
                successor.give_up(now.checked_add(patience));
            } else {
                log!(error, "killing process {pid}, the new master: it has not ended at once");
                successor.kill();
            }
        }
    }

    pub(super) fn see_who_is_dead(&mut self) {
        let now = Instant::now();
        let is_over = |process: &&Process| sys::has_ended(&process.pidfd);
        let over: Vec<_> = self.processes.iter().filter(is_over).map(|it| it.id).collect();
        if over.is_empty() {
            return;
        }
        // A dead worker may have accepted since the last look: then its start has not failed. Look
        // before the workers are reaped, because until then no other process gets their ids.
        self.see_who_is_ready();
        let mut ends = Vec::new();
        let is_dead = |process: &mut Process| {
            if !over.contains(&process.id) {
                return false;
            }
            let end = end_of(process.pid, &process.pidfd);
            ends.extend(end);
            end.is_some()
        };
        let dead: Vec<_> = self.processes.extract_if(.., is_dead).collect();
        for (process, end) in dead.into_iter().zip(ends) {
            // A worker's loops serve clients a moment before it says that it accepts.
            let has_served = process.has_accepted || process.died_in_a_task(&self.watchdog);
            self.forget(&process.heartbeats, process.sibling.as_ref(), process.reports_at);
            let status = match end {
                End::As(status) => Some(status),
                End::Held => None,
            };
            let may_fail = process.has_accepted;
            let place = self.crew.place_and_state(process.id).map(|(place, _)| place);
            if status.is_none() {
                self.unburied.push(Unburied { pid: process.pid, may_fail });
            }
            let how = status.map_or_else(|| "has ended, held by a debugger".to_owned(), describe);
            let pid = process.pid.as_raw_pid();
            match self.crew.lost(process.id, has_served, now) {
                Loss::Expected => {
                    log!(info, "worker {pid} {how}");
                    // A worker that never accepted loses nothing by its end.
                    self.code_at_the_end(status.filter(|_| may_fail));
                }
                Loss::Sudden => {
                    log!(error, "worker {pid} {how}; another one takes its place");
                    if let Some(place) = place.filter(|place| !self.crew.accepts(*place))
                        && self.are_sockets_ours()
                    {
                        self.listeners.groups.avoid(place);
                    }
                }
                Loss::Replacement => {
                    log!(error, "worker {pid} {how} before it accepted: the old workers continue");
                    // Workers that are not replaced are as ready as before.
                    self.reload_is_over();
                }
                Loss::Superseded => log!(
                    warn,
                    "worker {pid} {how} before it accepted: the next reload starts another one"
                ),
                Loss::First if self.ending_since.is_some() => {
                    log!(info, "worker {pid} {how} before it accepted");
                    self.end();
                }
                Loss::First => {
                    log!(error, "worker {pid} {how} before it accepted: this master ends");
                    self.code = code_of(status);
                    self.end();
                }
            }
        }
    }

    /// Sets the exit code from the status of a worker that was told to end.
    fn code_at_the_end(&mut self, status: Option<WaitStatus>) {
        let has_failed = status.is_some_and(|status| status.exit_status() != Some(0));
        if self.crew.is_ending() && has_failed {
            self.code = ExitCode::FAILURE;
        }
    }

    /// Waits for dead children that a debugger has released since.
    pub(super) fn bury(&mut self) {
        for one in std::mem::take(&mut self.unburied) {
            match waitpid(Some(one.pid), WaitOptions::NOHANG) {
                Ok(Some((_, status))) => {
                    self.code_at_the_end(Some(status).filter(|_| one.may_fail));
                }
                Ok(None) => self.unburied.push(one),
                Err(_) => {}
            }
        }
    }

    /// As process 1 the master also becomes the parent of processes whose own parents have ended.
    /// It waits for them, so that they do not stay in the process table. (There is no successor
    /// then.)
    pub(super) fn bury_strangers(&self) {
        if std::process::id() != 1 {
            return;
        }
        let children = fs::read_to_string("/proc/1/task/1/children").unwrap_or_default();
        let children =
            children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        // The master's own children are waited for elsewhere.
        let is_own = |pid: &Pid| self.processes.iter().any(|process| process.pid == *pid);
        for pid in children.filter(|pid| !is_own(pid)) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }

    /// Tells the siblings of workers that are stopped, so that others take their connections. (A
    /// dead worker is noticed by its pidfd.)
    pub(super) fn see_who_is_stopped(&mut self) {
        let changes = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        for process in &mut self.processes {
            let Ok(Some(status)) = waitid(WaitId::Pid(process.pid), changes) else { continue };
            let pid = process.pid.as_raw_pid();
            let sibling = self.siblings.as_ref().zip(process.sibling.as_ref());
            if status.stopped() {
                let consequence = match self.loops {
                    Some(_) => "its share of the connections waits",
                    None if self.crew.wanted() > 1 => "the others take new connections",
                    None => "new connections wait",
                };
                log!(
                    warn,
                    "worker {pid} is stopped (SIGSTOP): {consequence} until it continues \
                     (kill -CONT {pid})"
                );
                process.is_stopped = true;
                if let Some((siblings, sibling)) = sibling {
                    siblings.is_stopped(sibling);
                }
            } else if status.continued() {
                log!(info, "worker {pid} continues");
                process.is_stopped = false;
                if let Some((siblings, sibling)) = sibling {
                    siblings.goes_on(sibling);
                }
            }
        }
    }

    pub(super) fn see_successor(&mut self) {
        let Some(successor) = &mut self.successor else { return };
        match successor.progress() {
            Progress::Starting => {}
            Progress::Ready => {
                log!(info, "process {} has taken over: this master ends", successor.process());
                systemd::succeeded_by(successor.process());
                // The service manager knows by now that it is the master.
                successor.pass_on_what_came();
                self.succeeded_by = self.successor.take().map(Successor::in_charge);
                self.retire();
            }
            Progress::Past => {
                // This master was stopped, or starved, in the meantime.
                let process = successor.process();
                log!(
                    info,
                    "process {process} had taken over, and has ended since: this master ends, too"
                );
                self.successor = None;
                self.retire();
            }
            Progress::Failed(how) => {
                let ends = self.crew.is_ending();
                let then = if ends { "this one ends nevertheless" } else { "this one continues" };
                log!(error, "no upgrade: the new master {how}; {then}");
                if let Some(pid) = successor.unburied() {
                    self.unburied.push(Unburied { pid, may_fail: false });
                }
                let mut made = Vec::new();
                let all_came = successor.take_made(&mut made);
                self.successor = None;
                if ends {
                    // The master's addresses and its pid file may belong to another master by now.
                    return;
                }
                if let Err(error) = all_came {
                    log!(error, %error, "cannot close all sockets that the new master made: clients may still connect there until its workers have ended");
                }
                self.listeners.let_in_again();
                self.listeners.groups.steer_again(made, Instant::now());
                self.admit_who_accepts();
                self.avoid_who_has_died();
                // The successor may have reported that it was in charge.
                systemd::still_in_charge();
                if let Some(Err(error)) = self.pid_file.as_mut().map(PidFile::restore) {
                    log!(error, %error, "cannot write this master's process id to the pid file again: the file may still name the new master");
                }
            }
        }
    }

    /// The sockets and their files are another master's. The workers drain.
    fn retire(&mut self) {
        self.listeners.hand_over();
        self.pid_file.iter().for_each(PidFile::let_go);
        self.crew.end();
        self.list_workers();
    }

    pub(super) fn look_for_stuck_loops(&mut self) {
        let look = self.watchdog.look(Instant::now());
        self.look_at = look.next;
        for stuck in look.stuck {
            let process =
                self.processes.iter().find(|process| process.heartbeats == stuck.heartbeats);
            let Some(process) = process else { continue };
            log!(
                error,
                "killing worker {}: its loop {} has been in one turn for {:?}{}{}",
                process.pid.as_raw_pid(),
                stuck.number,
                stuck.at_least,
                stuck.running.map_or_else(String::new, |place| format!(", in the task of {place}")),
                stuck.work.map_or_else(String::new, |work| format!(", working on {work}")),
            );
            process.signal(Signal::KILL);
            self.watchdog.remove(&stuck.heartbeats);
        }
    }
}

fn describe(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => "has ended".to_owned(),
        (Some(code), _) => format!("has ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "has ended".to_owned(),
    }
}

/// The exit code of the master if one of the first workers has ended: that worker's code.
fn code_of(status: Option<WaitStatus>) -> ExitCode {
    let code = status.and_then(WaitStatus::exit_status).and_then(|code| u8::try_from(code).ok());
    code.filter(|code| *code != 0).map_or(ExitCode::FAILURE, ExitCode::from)
}
