//! The machine's keeper of CPUs that are held awake: one process that writes the kernel's files for
//! all that ask.
//!
//! One thread sleeps in `poll` on the socket, the clients and `stop`. It has a timeout only while
//! CPUs are held, or were held a moment ago, or while descriptors are scarce. Each message is
//! handled completely: the bookkeeping of `holders` says what each CPU's value should be,
//! `held_cpus` changes the files (`cpu_files`), after a note in `state_file`, and the client gets
//! its answer. Nothing waits for a client.

mod client;
mod cpu_files;
mod descriptors;
mod held_cpus;
mod holders;
mod lines;
mod lock;
mod settings;
mod socket;
mod start_error;
mod state_file;
mod status;
mod worth;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub use self::lines::KeeperLine;
pub use self::settings::KeeperSettings;
pub use self::start_error::KeeperStartError;

use self::client::{Client, Peers, Received};
use self::cpu_files::CpuFiles;
use self::held_cpus::HeldCpus;
use self::holders::{ClientId, Holders};
use self::lines::Lines;
use self::lock::Lock;
use self::socket::Listener;
use self::worth::Worth;
use crate::back_off::BackOff;
use crate::keeper_protocol::format_cpus;
use crate::keeper_protocol::{Answer, Request};

/// How long no client is let in after descriptors have run out.
const SHORTAGE: Duration = Duration::from_secs(1);
/// If a value could not be restored, that is tried again after the first time, and then after twice
/// as long, up to the second.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The machine's keeper of CPUs: one process that holds CPUs awake for all clients.
///
/// It writes `pm_qos_resume_latency_us` of each CPU for all clients. It restores the previous
/// values after the last release, when it ends or is dropped, and, if it was killed, at its next
/// start.
///
/// # Examples
/// ```no_run
/// use std::os::fd::AsFd;
/// use std::os::unix::net::UnixStream;
/// use wakeful_awake::{Keeper, KeeperSettings};
///
/// let (stop, stopper) = UnixStream::pair()?;
/// let settings = KeeperSettings::new().lines(|line| eprintln!("{line}"));
/// let mut keeper = Keeper::open(settings)?;
/// // Another thread, or a signal handler, writes to `stopper`.
/// keeper.run(stop.as_fd())?;
/// # drop(stopper);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Keeper {
    // The fields are dropped in this order, so that the socket's file is removed before the lock is
    // released.
    listener: Listener,
    clients: BTreeMap<ClientId, Client>,
    next_client: ClientId,
    peers: Peers,
    holders: Holders,
    cpus: HeldCpus,
    worth: Worth,
    back_off: BackOff,
    root: PathBuf,
    lines: Lines,
    /// Until then no client is let in.
    shortage: Option<Instant>,
    /// When the next attempt to restore a value is made, and the pause before it.
    retry: Option<(Instant, Duration)>,
    _lock: Lock,
}

/// The results of `poll`.
#[derive(Debug, Default)]
struct Ready {
    is_stopped: bool,
    has_arrivals: bool,
    clients: Vec<(ClientId, PollFlags)>,
}

impl Keeper {
    /// Takes the lock, restores the values that a killed keeper has left, and listens. It holds no
    /// CPU yet.
    ///
    /// # Errors
    /// Another keeper runs, the CPUs' files may not be written, the machine has none of the CPUs of
    /// [`KeeperSettings::cpus`], or the socket cannot be made.
    pub fn open(settings: KeeperSettings) -> Result<Self, KeeperStartError> {
        let KeeperSettings { socket, listener, state, lock, group, .. } = settings;
        let KeeperSettings { mut limits, is_measured, cpu_directory, mut lines, .. } = settings;
        let back_off = settings.back_off;
        descriptors::check()?;
        if let Some((room, limit)) = descriptors::for_clients()
            && room < limits.most_clients
        {
            lines.trouble(format_args!(
                "at most {room} clients are let in, since the limit of descriptors is {limit}"
            ));
            limits.most_clients = room;
        }
        for path in [&socket, &state, &lock] {
            if path.parent() == Some(Path::new(settings::DIRECTORY)) {
                // An error is ignored, because the code that uses the directory reports one.
                let _ = fs::create_dir(settings::DIRECTORY);
            }
        }
        let files = CpuFiles::new(&cpu_directory);
        let all = files.all().unwrap_or_default();
        let first = *all.first().ok_or(KeeperStartError::NoFiles(cpu_directory.clone()))?;
        let writable = files.check_write(first);
        writable.map_err(|error| KeeperStartError::NotWritable(files.path(first), error))?;
        let missing: Vec<usize> =
            limits.cpus.iter().flatten().copied().filter(|cpu| !all.contains(cpu)).collect();
        if !missing.is_empty() {
            let is_all = limits.cpus.as_ref().is_some_and(|cpus| cpus.len() == missing.len());
            let missing = format_cpus(&missing);
            if is_all {
                return Err(KeeperStartError::NoSuchCpus {
                    asked: missing,
                    there: format_cpus(&all),
                });
            }
            lines.trouble(format_args!("nobody can hold CPU {missing}: it is not on this machine"));
        }
        let lock = Lock::take(&lock)?;
        if let Some(directory) = state.parent()
            && !directory.as_os_str().is_empty()
            && let Err(error) = fs::metadata(directory)
        {
            lines.trouble(format_args!(
                "the state file {} cannot be written, so no CPU is held: {}: {error}",
                state.display(),
                directory.display()
            ));
        }
        let cpus = HeldCpus::recover(files, &state, &mut lines);
        let listener = match listener {
            Some(socket) => Listener::passed(socket)?,
            None => Listener::bind(&socket, group)?,
        };
        Ok(Self {
            listener,
            clients: BTreeMap::new(),
            next_client: 0,
            peers: Peers::of_this_namespace(),
            holders: Holders::new(limits),
            cpus,
            back_off,
            worth: if is_measured { Worth::NotYet } else { Worth::Unmeasured },
            root: cpu_directory,
            lines,
            shortage: None,
            retry: None,
            _lock: lock,
        })
    }

    /// Serves clients until `stop` is readable. Then it restores the previous values, and closes
    /// the clients' connections.
    ///
    /// # Errors
    /// The hard limit of descriptors was lowered so far that not even one client can be served; or
    /// another process that has the listening socket has shut it down. The previous values are then
    /// also restored, as far as there are descriptors for it.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        let served = self.serve(stop);
        if served.is_err() {
            // This frees the clients' descriptors for the CPUs' files.
            self.clients.clear();
        }
        self.cpus.restore_all(&mut self.lines);
        let clients: Vec<ClientId> = self.clients.keys().copied().collect();
        for client in clients {
            self.holders.leave(client);
            self.clients.remove(&client);
        }
        served
    }

    fn serve(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        loop {
            self.retry();
            self.cpus.forget_released(Instant::now(), &mut self.lines);
            let ready = self.wait(stop)?;
            if ready.is_stopped {
                return Ok(());
            }
            self.end_overdue();
            self.end_reluctantly_held();
            for (client, flags) in ready.clients {
                self.attend(client, flags);
            }
            if ready.has_arrivals {
                self.let_in();
            }
        }
    }

    /// There is no timeout, unless something has a time limit.
    fn wait(&mut self, stop: BorrowedFd<'_>) -> io::Result<Ready> {
        let retry = self.retry.map(|(due, _)| due);
        // While CPUs are held.
        let look = self.holders.holds().next().and_then(|_| self.back_off.next_look());
        let forget = self.cpus.next_to_forget();
        let deadlines = [self.holders.deadline(), self.shortage, retry, look, forget];
        let deadline = deadlines.into_iter().flatten().min();
        let pause = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let pause = pause.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let is_short = self.shortage.is_some();
        let mut fds = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        let arrivals = if is_short { PollFlags::empty() } else { PollFlags::IN };
        fds.push(PollFd::new(&self.listener, arrivals | PollFlags::RDHUP));
        let of_client = |client| PollFd::new(client, PollFlags::IN | PollFlags::RDHUP);
        fds.extend(self.clients.values().map(of_client));
        match poll(&mut fds, pause.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => {
                let count = fds.len();
                drop(fds);
                if error == Errno::INVAL && (descriptors::raise() || self.send_away()) {
                    return Ok(Ready::default());
                }
                return Err(descriptors::explain_poll(error, count));
            }
        }
        if fds[1].revents().intersects(PollFlags::RDHUP | PollFlags::HUP) {
            let text = "another process has shut down the keeper's socket, so no client can come";
            return Err(io::Error::other(text));
        }
        let flags = fds[2..].iter().map(PollFd::revents);
        let clients = self.clients.keys().copied().zip(flags);
        let ready = Ready {
            is_stopped: !fds[0].revents().is_empty(),
            has_arrivals: !is_short && !fds[1].revents().is_empty(),
            clients: clients.filter(|(_, flags)| !flags.is_empty()).collect(),
        };
        if self.shortage.is_some_and(|end| Instant::now() >= end) {
            self.shortage = None;
        }
        Ok(ready)
    }

    /// Tries to restore the remaining values, if it is time.
    fn retry(&mut self) {
        let cpus = self.cpus.unrestored();
        let pause = match self.retry {
            _ if cpus.is_empty() => return self.retry = None,
            None => RETRY.0,
            Some((due, pause)) if Instant::now() >= due => {
                self.bring_back(&cpus);
                (pause * 2).min(RETRY.1)
            }
            Some(_) => return,
        };
        self.retry = Some((Instant::now() + pause, pause));
    }

    fn let_in(&mut self) {
        let socket = match self.listener.accept() {
            Ok(Some(socket)) => socket,
            Ok(None) => return,
            Err(error) => {
                // The socket stays readable, so without a pause this loop would spin.
                self.lines.trouble(format_args!(
                    "no client is let in for a second: {}",
                    descriptors::explain(error)
                ));
                self.shortage = Some(Instant::now() + SHORTAGE);
                return;
            }
        };
        let client = Client::new(socket, self.peers);
        let id = self.next_client;
        match self.holders.enter(id) {
            Ok(()) => {
                self.next_client += 1;
                self.clients.insert(id, client);
            }
            Err(refusal) => {
                // If a message were unread, the close would reset the connection, and the client
                // would not see the answer.
                client.receive(PollFlags::IN);
                // An error does not matter, because the connection is closed anyway.
                let _ = client.answer(&Answer::Refused(refusal.to_string()));
            }
        }
    }

    /// Handles one message of a client.
    fn attend(&mut self, id: ClientId, flags: PollFlags) {
        // The client may have been removed while another one was handled.
        let Some(client) = self.clients.get(&id) else { return };
        let request = match client.receive(flags) {
            Received::Nothing => return,
            Received::End => return self.leave(id),
            Received::Request(request) => request,
        };
        let answer = match request {
            Ok(Request::Hold { cpus, microseconds }) => self.hold(id, cpus, microseconds),
            Ok(Request::Release) => {
                let before = self.holders.release(id);
                self.bring_back(&before);
                Answer::Released
            }
            Ok(Request::Status) => Answer::Status(self.status()),
            Err(error) => self.refuse(id, error.to_string()),
        };
        self.answer(id, &answer);
    }

    fn hold(&mut self, id: ClientId, cpus: Vec<usize>, microseconds: u32) -> Answer {
        if let Some(reluctance) = self.back_off.look(Instant::now()) {
            return self.refuse(id, reluctance.to_string());
        }
        if !self.worth.is_known() && self.holders.holds().next().is_none() {
            let allowed = match &self.holders.limits().cpus {
                Some(cpus) => cpus.clone(),
                None => self.cpus.files().all().unwrap_or_default(),
            };
            let worth = self.worth.check(&allowed, &mut self.cpus, &self.root, &mut self.lines);
            if let Err(reason) = worth {
                return self.refuse(id, reason);
            }
        }
        let mut touched = self.holders.held_by(id).to_vec();
        if let Err(refusal) = self.holders.hold(id, &cpus, microseconds, Instant::now()) {
            return self.refuse(id, refusal.to_string());
        }
        touched.extend(&cpus);
        touched.sort_unstable();
        touched.dedup();
        let holders = &self.holders;
        let brought = self.cpus.bring(&touched, &cpus, |cpu| holders.wanted(cpu), &mut self.lines);
        match brought {
            Ok(()) => Answer::Held(cpus),
            Err(error) => {
                let answer = self.refuse(id, error.to_string());
                // Some of the CPUs that the client held before are no longer wanted.
                self.bring_back(&touched);
                answer
            }
        }
    }

    /// The client then holds nothing, but stays overdue if it was.
    fn refuse(&mut self, id: ClientId, reason: String) -> Answer {
        let before = self.holders.drop_hold(id);
        self.bring_back(&before);
        Answer::Refused(reason)
    }

    fn leave(&mut self, id: ClientId) {
        self.clients.remove(&id);
        // The client's descriptor is free again.
        self.shortage = None;
        let before = self.holders.leave(id);
        self.bring_back(&before);
    }

    /// Called when the hard limit of descriptors was lowered. The newest clients are closed, so
    /// that `poll` accepts the others, and the CPUs' files can be opened. `false`: that does not
    /// help.
    fn send_away(&mut self) -> bool {
        let Some((room, limit)) = descriptors::for_clients() else { return false };
        let newest: Vec<ClientId> = self.clients.keys().copied().skip(room).collect();
        if newest.is_empty() {
            return false;
        }
        self.lines.trouble(format_args!(
            "{} clients are sent away, and at most {room} are let in from now on, since the limit of descriptors was lowered to \
             {limit} (RLIMIT_NOFILE)",
            newest.len()
        ));
        self.holders.let_in_at_most(room);
        // All clients are closed first, because each CPU's file needs a descriptor.
        for client in &newest {
            self.clients.remove(client);
        }
        let held = newest.into_iter().flat_map(|client| self.holders.leave(client));
        let mut cpus: Vec<usize> = held.collect();
        cpus.sort_unstable();
        cpus.dedup();
        self.bring_back(&cpus);
        true
    }

    fn end_overdue(&mut self) {
        let ended = self.holders.end_overdue(Instant::now());
        for (id, cpus) in ended {
            self.bring_back(&cpus);
            let longest = self.holders.limits().longest.unwrap_or_default();
            let reason = format!("held for the longest time, {longest:?}: release first");
            self.answer(id, &Answer::Ended(reason));
        }
    }

    /// Ends all holds, because the machine now runs on its battery, or the hypervisor needs the
    /// time.
    fn end_reluctantly_held(&mut self) {
        let clients: Vec<ClientId> = self.holders.holds().map(|(id, _)| id).collect();
        if clients.is_empty() {
            return;
        }
        let Some(reluctance) = self.back_off.look(Instant::now()) else { return };
        for id in clients {
            let before = self.holders.drop_hold(id);
            self.bring_back(&before);
            self.answer(id, &Answer::Ended(reluctance.to_string()));
        }
    }

    /// Updates CPUs that are held less strictly than before, or no longer.
    fn bring_back(&mut self, cpus: &[usize]) {
        let holders = &self.holders;
        let brought = self.cpus.bring(cpus, &[], |cpu| holders.wanted(cpu), &mut self.lines);
        if let Err(error) = brought {
            self.lines.trouble(error);
        }
    }

    /// Sends an answer. A client whose buffer is full loses its connection, because it would miss
    /// the answer.
    fn answer(&mut self, id: ClientId, answer: &Answer) {
        if self.clients.get(&id).is_some_and(|client| client.answer(answer).is_err()) {
            self.leave(id);
        }
    }

    fn status(&self) -> String {
        status::text(&self.clients, &self.holders, &self.worth, Instant::now())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.cpus.restore_all(&mut self.lines);
    }
}
