//! Handles the signals of a master.

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal as Name;
use rustix::process::Signal;

use super::process::Process;
use super::{ONE_SIGNAL, Running};
use crate::pid_file::PidFile;
use crate::settings::MOST_WORKERS;
use crate::signals::Request;
use crate::successor::{AT_ONCE_FOR_SUCCESSOR, Successor};
use crate::{sys, systemd};

/// How much longer than a worker a new master may take. It first ends its own workers that do not
/// start, and then itself. If it were killed before, nobody would end them.
const MORE_THAN_WORKERS: Duration = Duration::from_secs(5);

/// How much earlier than the end of the workers' accepting the sockets close. Otherwise a client
/// could connect that no worker accepts.
const SOONER: Duration = Duration::from_millis(250);

/// How long workers that are told to end have to accept the clients that wait. Workers that
/// somebody else told before accept no more, and neither do dead ones.
pub(super) const UNTIL_BACKLOGS_ARE_EMPTY: Duration = Duration::from_millis(100);

impl Running {
    pub(super) fn take(&mut self, signal: Name, request: Request) {
        let is_of_somebody = !matches!(request, Request::End | Request::LookAtChildren);
        if self.pass_on_to_successor(signal, request) {
            return;
        }
        if self.crew.is_ending() && is_of_somebody {
            log!(info, "{signal}: no effect, because this master ends");
            return;
        }
        match request {
            Request::End if self.crew.is_ending() => {
                match self.ending_since {
                    Some(since) if since.elapsed() >= ONE_SIGNAL => self.end_at_once(signal),
                    Some(_) => {}
                    // The successor has taken over, or has failed.
                    None => self.ending_since = Some(Instant::now()),
                }
            }
            Request::End => {
                log!(info, "{signal}: the workers drain; a second signal stops them at once");
                // The sender of this signal may also have sent one to the workers.
                self.ending_since = Some(Instant::now());
                // Clients that wait for a dead worker are served by another one.
                self.see_who_is_dead();
                if !self.crew.is_ending() {
                    self.end();
                }
                // A signal that came while the last handshakes completed belongs to the first one.
                self.ending_since = Some(Instant::now());
            }
            Request::Replace => {
                self.replace(signal);
                self.pass_on(signal, Signal::HUP);
            }
            Request::Reopen => {
                log!(
                    info,
                    "{signal}: sending HUP to the workers: they reopen logs and reload certificates"
                );
                // A worker that is starting gets the signal only when it has its handlers.
                for process in &mut self.processes {
                    if process.has_accepted {
                        process.signal(Signal::HUP);
                    } else {
                        process.is_to_reopen = true;
                    }
                }
                self.pass_on(signal, Signal::USR1);
            }
            Request::Upgrade => self.upgrade(signal),
            Request::More => {
                self.resume();
                self.want(signal, self.crew.wanted() + 1);
            }
            Request::Fewer => self.want_fewer(signal),
            Request::DrainWorkers => {
                log!(info, "{signal}: the workers drain, and this master stays");
                self.before_pause.get_or_insert(self.crew.wanted());
                self.crew.set_wanted(0);
                if self.crew.stop_replacing() {
                    // No worker is left to replace.
                    self.reload_is_over();
                }
            }
            Request::LookAtChildren => self.see_who_is_stopped(),
        }
    }

    /// Makes all workers drain, and lets no new clients in.
    pub(super) fn end(&mut self) {
        let now = Instant::now();
        self.pid_file.iter().for_each(PidFile::let_go);
        self.crew.end();
        self.ends_by = self.drained_by(now);
        // If the predecessor has not read that this master is ready, it continues with the sockets.
        // (If each loop has its own, clients may wait at some that the predecessor will close.)
        if self.is_predecessor_there() && self.listeners.groups.is_empty() {
            self.inheritance.take_back();
        }
        // Operators learn of the end before clients notice it.
        self.list_workers();
        // A signal to all processes has just reached the successor, too. If this one came later,
        // it would be a second signal there.
        if let Some(successor) = &mut self.successor {
            successor.give_up(self.ends_by);
        }
        if self.inheritance.is_waited_for() {
            // The predecessor continues with the sockets.
            self.listeners.leave();
        } else {
            systemd::stopping();
            self.close_at = now.checked_add(self.pre_drain.saturating_sub(SOONER));
            self.close_if_due(now);
        }
    }

    /// Keeps new clients out, if it is time for that. A moment later the sockets close. If clients
    /// still wait at one of them, a worker is started for them first.
    pub(super) fn close_if_due(&mut self, mut now: Instant) {
        // Nobody accepts any more when no worker is left.
        if self.close_at.is_some_and(|at| at <= now || self.crew.is_over()) {
            self.close_at = None;
            self.listeners.let_nobody_in();
            // That may have waited for handshakes, before the workers were told to end.
            now = Instant::now();
            let may_wait = !self.listeners.groups.is_empty() || self.listeners.are_waited_at();
            self.closing =
                Some(now + if may_wait { UNTIL_BACKLOGS_ARE_EMPTY } else { Duration::ZERO });
        }
        let is_due = self.closing.is_some_and(|at| at <= now) && !self.crew.is_clearing();
        if is_due && !self.clear_who_waits(now) {
            self.closing = None;
            self.listeners.close();
        }
    }

    /// Returns whether a worker is started for clients that wait.
    fn clear_who_waits(&mut self, now: Instant) -> bool {
        if self.at_once.is_some() || self.ends_by.is_some_and(|by| by <= self.looked_at) {
            return false;
        }
        let mut waited_at = self.listeners.groups.waited_at();
        // A worker in any place accepts from the sockets that all share.
        waited_at.extend(self.listeners.are_waited_at().then_some(0));
        let crew = &mut self.crew;
        let clears =
            waited_at.into_iter().filter(|place| crew.clear_at_the_end(*place)).count() > 0;
        if clears {
            self.closing = Some(now + UNTIL_BACKLOGS_ARE_EMPTY);
        }
        clears
    }

    /// Ends everything as after a signal. This master then ends with this error.
    pub(super) fn fail(&mut self, error: io::Error) {
        log!(error, %error, "the workers drain, and then this master ends");
        self.failure = Some(error);
        self.end();
    }

    fn end_at_once(&mut self, signal: Name) {
        log!(warn, "{signal}, the second one: ending at once");
        self.code = ExitCode::FAILURE;
        self.crew.stop_clearing();
        self.close_at = None;
        if self.at_once.is_none() {
            self.at_once = Some(Instant::now());
            self.signal_all(Signal::TERM);
            if let Some(successor) = &mut self.successor {
                successor.give_up(Instant::now().checked_add(AT_ONCE_FOR_SUCCESSOR));
            }
        }
    }

    /// During an upgrade the workers of the new master may have read their files already.
    fn pass_on(&mut self, name: Name, signal: Signal) {
        if let Some(successor) = &mut self.successor {
            log!(info, "{name}: the new master gets it too, when it has taken over");
            successor.pass_on(signal);
        }
    }

    /// A sender of HUP or USR1 may have read this master's process id just before the new master
    /// took over. Returns whether that one gets the signal instead.
    pub(super) fn pass_on_to_successor(&self, name: Name, request: Request) -> bool {
        let signal = match request {
            Request::Replace => Signal::HUP,
            Request::Reopen => Signal::USR1,
            _ => return false,
        };
        let successor = self.succeeded_by.as_ref().filter(|it| !sys::has_ended(&it.pidfd));
        let Some(successor) = successor else { return false };
        let pid = successor.pid.as_raw_pid();
        log!(info, "{name}: passed on to process {pid}, the new master");
        successor.signal(signal);
        true
    }

    fn replace(&mut self, signal: Name) {
        log!(info, "{signal}: replacing the workers, one after the other");
        self.listeners.warn_of_lost_files();
        self.resume();
        systemd::reloading();
        self.crew.replace_all();
    }

    /// The worker in the last place leaves, unless it is the only one that serves.
    fn want_fewer(&mut self, signal: Name) {
        let last = self.crew.wanted().saturating_sub(1);
        if last > 0 && self.serves(last) && !(0..last).any(|place| self.serves(place)) {
            log!(
                warn,
                "{signal}: no effect, because no other worker serves: they start, have failed, or \
                 are stopped"
            );
            return;
        }
        self.want(signal, last);
    }

    /// Does a worker accept in this place that is not stopped (SIGSTOP)?
    fn serves(&self, place: usize) -> bool {
        let is_stopped = |one: &Process| {
            one.is_stopped && self.crew.place_and_state(one.id).is_some_and(|(at, _)| at == place)
        };
        self.crew.accepts(place) && !self.processes.iter().any(is_stopped)
    }

    fn want(&mut self, signal: Name, wanted: usize) {
        if self.before_pause.is_some() {
            log!(info, "{signal}: no effect, since all workers were told to drain");
            return;
        }
        if !self.listeners.groups.is_empty() && !self.are_sockets_ours() {
            log!(info, "{signal}: no effect, because an upgrade is under way");
            return;
        }
        let wanted = wanted.clamp(1, MOST_WORKERS);
        log!(info, "{signal}: the number of workers is now {wanted}");
        self.listeners.groups.retire(wanted, Instant::now());
        let completes = self.crew.set_wanted(wanted);
        // TTIN may come before a worker that TTOU made unwanted is told to drain. It goes on.
        self.admit_who_accepts();
        if completes {
            // Workers that had not begun, or were still to be replaced, are no longer wanted.
            self.begin();
        }
    }

    /// Wants as many workers again as before all were told to drain.
    fn resume(&mut self) {
        if let Some(before) = self.before_pause.take()
            && self.crew.set_wanted(before)
        {
            self.begin();
        }
    }

    fn upgrade(&mut self, signal: Name) {
        if self.inheritance.is_waited_for() {
            log!(warn, "{signal}: no upgrade: this process has not taken over yet");
        } else if let Some(what) = self.place.ends_container() {
            log!(
                warn,
                "{signal}: no upgrade: this master {what}, and the container would end with it. \
                 Replace the container"
            );
        } else if !self.crew.has_begun() {
            // There is nothing to hand over, and if these workers fail, so does the service.
            log!(
                warn,
                "{signal}: no upgrade: the first workers of this master do not all accept yet. Signal \
                 again when they do, or end this master (TERM) and start the new program"
            );
        } else if self.successor.is_some() {
            log!(warn, "{signal}: no effect: an upgrade is under way");
        } else {
            let start_by =
                Instant::now().checked_add(self.start_timeout.saturating_add(MORE_THAN_WORKERS));
            self.listeners.listen_again();
            match Successor::start(&self.program, &self.listeners, start_by) {
                Ok(successor) => {
                    log!(info, "{signal}: upgrading: process {} starts", successor.process());
                    self.successor = Some(successor);
                }
                Err(error) => log!(error, %error, "no upgrade; this master continues"),
            }
        }
    }
}
