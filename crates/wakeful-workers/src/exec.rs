//! Workers that execute the program again: see [`StartMethod::Exec`].
//!
//! A forked child makes its [`Worker`] like any other child, and passes it to the program that it
//! executes. That program makes the same `Worker` again. The descriptors stay open under their
//! numbers. A file in memory has the rest: a line for each part, of a word and its numbers; an
//! empty line; and the data that the master shares. An environment variable names the process and
//! the file's descriptor. Another process that inherits the variable ignores it.
//!
//! The file of the program is the one that the master runs, so that both have the same idea of the
//! memory that they share.

use std::convert::Infallible;
use std::env;
use std::ffi::CString;
use std::fs;
use std::io;
use std::iter;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::prctl;
use rustix::io::{FdFlags, fcntl_setfd};
use wakeful::accept::Sibling;
use wakeful::heartbeat::Heartbeats;

use crate::reports::Reports;
use crate::successor::{Program, THIS_FILE};
use crate::worker::{Orphans, SharedData, Worker};
use crate::{memory_file, signals, sys};

/// The environment variable by which the program learns that it is a worker. Its value is the id of
/// the process, a space, and the number of the descriptor of the file with the rest.
const WORKER: &str = "WAKEFUL_WORKER";

/// The process that was executed as a worker. Its forked children are not workers.
static EXECUTED: AtomicU32 = AtomicU32::new(0);

/// How a master starts its workers: see [`Master::start_method`](crate::Master::start_method).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartMethod {
    /// A worker is a fork of the master. It starts within a millisecond, and shares with the master
    /// all memory that neither of them changes.
    #[default]
    Fork,
    /// A worker is a fork of the master that executes the program again, with the same arguments
    /// and environment. It executes the same file as the master, even if another file has replaced
    /// it at its path. In the worker, [`Master::run`](crate::Master::run) returns
    /// [`Role::Worker`](crate::Role::Worker) at once, and ignores the settings of its `Master`.
    ///
    /// This has three advantages:
    ///
    /// * Each worker has its own address space layout and random seeds. Forked workers have the
    ///   layout of the master, even after a crash. So an attacker who can crash workers can find
    ///   the layout out, attempt by attempt.
    /// * Nothing of the master's memory is in a worker.
    /// * Libraries that do not survive a fork work in the worker, if the program initialises them
    ///   after `run`.
    ///
    /// In return, workers share no data that the program loads before `run`, and each start of a
    /// worker takes as long as a start of the program. Pass what all workers must have in common to
    /// [`Master::shared_data`](crate::Master::shared_data).
    ///
    /// Each worker repeats everything that the program does before `run`. Check
    /// [`is_executed_worker`] before anything that only the master should do, such as becoming a
    /// daemon. In a worker, do not fork before `run`, and do not clear the environment: the process
    /// would not know that it is a worker. A second `run` in a worker is an error.
    ///
    /// Until `run`, a worker ignores SIGHUP, SIGUSR1 and SIGUSR2. `Exec` needs /proc. If the
    /// program cannot be executed, the worker's `run` returns the error, and the worker has failed
    /// to start.
    Exec,
}

/// Returns whether a master has executed this process as a worker ([`StartMethod::Exec`]). The
/// result is the same before [`Master::run`](crate::Master::run) and after it. It is `false` in a
/// forked worker, and in processes that the worker starts.
#[must_use]
pub fn is_executed_worker() -> bool {
    EXECUTED.load(Ordering::Relaxed) == process::id() || told().is_some()
}

/// # Errors
/// The file that this process runs is unknown. The text says what to do.
pub(crate) fn is_possible() -> io::Result<()> {
    fs::metadata(THIS_FILE).map(drop).map_err(|error| {
        let text = format!(
            "workers cannot execute this program again: {THIS_FILE}: {error}. Mount /proc, or let \
             the master only fork its workers"
        );
        io::Error::new(error.kind(), text)
    })
}

/// Executes the program, which becomes this worker. This returns only if that fails.
pub(crate) fn execute(worker: &Worker, program: &Program) -> io::Error {
    let executed = || -> io::Result<Infallible> {
        let told = [text_of(worker).as_bytes(), b"\n", &worker.shared_data.0].concat();
        let file = memory_file::with("wakeful-worker", "what a worker is told", &told)?;
        for fd in descriptors(worker).chain([file.as_fd()]) {
            fcntl_setfd(fd, FdFlags::empty())?;
        }
        signals::survive_requests_in_program()?;
        let value = format!("{} {}", process::id(), file.as_raw_fd());
        Err(program.again().env(WORKER, value).exec())
    };
    let Err(error) = executed();
    let text = format!("this worker cannot execute its program ({THIS_FILE}): {error}");
    io::Error::new(error.kind(), text)
}

/// Makes the [`Worker`], if this process was executed as one. This can be called only once.
///
/// # Errors
/// It is called twice; the file does not fit this process; the process has several threads; no
/// memory.
pub(crate) fn this_worker() -> io::Result<Option<Worker>> {
    let Some(number) = told() else { return is_no_worker().map(|()| None) };
    // Programs that this process starts are not workers.
    sys::forget_variable(WORKER)?;
    EXECUTED.store(process::id(), Ordering::Relaxed);
    signals::survive_requests();
    let worker = worker_of(number).map_err(|error| {
        let text = format!("this process was told by {WORKER} that it is a worker: {error}");
        io::Error::new(error.kind(), text)
    })?;
    Ok(Some(worker))
}

/// # Errors
/// This process was executed as a worker, and has run as one.
fn is_no_worker() -> io::Result<()> {
    if EXECUTED.load(Ordering::Relaxed) != process::id() {
        return Ok(());
    }
    // Its workers would do the same, and there would be processes without end.
    Err(io::Error::other("an executed worker cannot be a master"))
}

/// The number of the file's descriptor, if the variable means this process.
fn told() -> Option<RawFd> {
    let value = env::var(WORKER).ok()?;
    let (process, descriptor) = value.split_once(' ')?;
    let is_meant = process.parse() == Ok(process::id());
    descriptor.parse().ok().filter(|_| is_meant)
}

/// All descriptors of the worker.
fn descriptors(worker: &Worker) -> impl Iterator<Item = BorrowedFd<'_>> {
    let listeners = worker.listeners.iter().chain(&worker.admin_listeners).map(AsFd::as_fd);
    let own = worker.ready.iter().chain([&worker.lifeline]).map(AsFd::as_fd);
    let places = worker.sibling.iter().flat_map(Sibling::descriptors);
    let beats = worker.heartbeats.descriptors();
    listeners.chain(own).chain(places).chain(beats).chain(worker.reports.descriptors())
}

/// The lines that [`Told`] parses.
fn text_of(worker: &Worker) -> String {
    let owned = |fds: &[OwnedFd]| numbers(fds.iter().map(AsFd::as_fd));
    let sibling = worker.sibling.as_ref().map(|sibling| {
        let place = iter::once(sibling.place().to_string());
        ("sibling", place.chain(numbers(sibling.descriptors())).collect())
    });
    let reports = iter::once(worker.reports.place().to_string());
    let lines = [
        ("number", vec![worker.number.to_string()]),
        ("goes-on", vec![u8::from(worker.orphans == Orphans::GoOn).to_string()]),
        ("listeners", owned(&worker.listeners)),
        ("sockets-each", worker.sockets_each.iter().map(ToString::to_string).collect()),
        ("admin", owned(&worker.admin_listeners)),
        ("ready", worker.ready.iter().map(|fd| fd.as_raw_fd().to_string()).collect()),
        ("lifeline", vec![worker.lifeline.as_raw_fd().to_string()]),
        ("reports", reports.chain(numbers(worker.reports.descriptors())).collect()),
        ("heartbeats", numbers(worker.heartbeats.descriptors())),
    ];
    let lines = lines.into_iter().chain(sibling);
    let lines: String =
        lines.map(|(word, values)| format!("{word} {}\n", values.join(" "))).collect();
    // Without this the process would be named after the link by which it was executed.
    let name = prctl::get_name().unwrap_or_default();
    format!("{lines}name {}\n", name.to_string_lossy().replace('\n', "?"))
}

fn numbers<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>) -> Vec<String> {
    fds.into_iter().map(|fd| fd.as_raw_fd().to_string()).collect()
}

/// # Errors
/// The file does not fit this process; no memory.
fn worker_of(number: RawFd) -> io::Result<Worker> {
    let mut told = memory_file::read(take(&[number])?.swap_remove(0))?;
    let end = told.windows(2).position(|two| two == b"\n\n").ok_or_else(not_understood)?;
    let shared_data = told.split_off(end + 2);
    let told = Told(String::from_utf8(told).map_err(|_| not_understood())?);
    let name = told.line("name").and_then(|name| CString::new(name).ok());
    // The name is only what other programs see, so an error does not matter.
    let _ = name.map(|name| prctl::set_name(&name));
    let sibling = match told.line("sibling") {
        Some(_) => {
            let (place, descriptors) = told.place("sibling")?;
            Some(Sibling::from_descriptors(place, descriptors)?)
        }
        None => None,
    };
    let (place, wires) = told.place("reports")?;
    let wires = wires.try_into().map_err(|_| not_understood())?;
    Ok(Worker {
        number: told.one("number")?,
        listeners: told.descriptors("listeners")?,
        sockets_each: told.numbers("sockets-each")?.pop(),
        admin_listeners: told.descriptors("admin")?,
        reports: Reports::from_descriptors(place, wires),
        heartbeats: Heartbeats::from_descriptors(told.descriptors("heartbeats")?)?,
        sibling,
        ready: told.descriptors("ready")?.pop(),
        lifeline: told.descriptors("lifeline")?.pop().ok_or_else(not_understood)?,
        orphans: match told.one::<u8>("goes-on")? {
            0 => Orphans::Drain,
            _ => Orphans::GoOn,
        },
        shared_data: SharedData(shared_data),
    })
}

/// Parses the lines of [`text_of`]. Only the first call for a line takes its descriptors.
struct Told(String);

impl Told {
    fn line(&self, word: &str) -> Option<&str> {
        let mut lines = self.0.lines().filter_map(|line| line.split_once(' '));
        lines.find_map(|(first, rest)| (first == word).then_some(rest))
    }

    fn numbers<N: FromStr>(&self, word: &str) -> io::Result<Vec<N>> {
        let line = self.line(word).ok_or_else(not_understood)?;
        let numbers = line.split(' ').filter(|number| !number.is_empty());
        numbers.map(|number| number.parse().map_err(|_| not_understood())).collect()
    }

    fn one<N: FromStr>(&self, word: &str) -> io::Result<N> {
        self.numbers(word)?.pop().ok_or_else(not_understood)
    }

    fn descriptors(&self, word: &str) -> io::Result<Vec<OwnedFd>> {
        take(&self.numbers(word)?)
    }

    /// The number of a place, and its descriptors.
    fn place(&self, word: &str) -> io::Result<(usize, Vec<OwnedFd>)> {
        let numbers: Vec<RawFd> = self.numbers(word)?;
        let (place, descriptors) = numbers.split_first().ok_or_else(not_understood)?;
        let place = usize::try_from(*place).map_err(|_| not_understood())?;
        Ok((place, take(descriptors)?))
    }
}

fn take(numbers: &[RawFd]) -> io::Result<Vec<OwnedFd>> {
    sys::take_descriptors(numbers)?.ok_or_else(not_understood)
}

fn not_understood() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the master's message to this worker is not valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood_one_by_one() {
        let told = Told("number 3\nlisteners 4 5\nadmin \nsibling 1 x\n".to_owned());
        assert_eq!(told.one::<usize>("number").unwrap(), 3);
        assert_eq!(told.numbers::<RawFd>("listeners").unwrap(), [4, 5]);
        assert_eq!(told.numbers::<RawFd>("admin").unwrap(), []);
        assert!(told.one::<usize>("admin").is_err(), "nothing is there");
        assert!(told.place("sibling").is_err(), "no number");
        assert!(told.line("num").is_none() && told.numbers::<RawFd>("ready").is_err());
    }
}
