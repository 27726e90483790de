//! What it costs that workers execute the program: the time of their starts, and their memory.
//!
//! The master's log has the time at which a worker accepts, in microseconds. No requests are sent
//! meanwhile: a request would wake a worker, and take a CPU from those that start.

use std::io;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use procfs::process::Process;
use rustix::process::Signal;
use wakeful_load::internals::bench::Bench;
use wakeful_load::internals::procfs::children_of;
use wakeful_load::internals::quiet::Baseline;
use wakeful_load::internals::servers::{Server, ServerSpec};
use wakeful_load::internals::statistics::median;

use super::contenders::{self, EXECUTED, WAKEFUL};
use super::master;
use crate::interleaved::{self, Failure, Measured};
use crate::lab::{Lab, LabError, Size};

/// The name of the part, as in `--parts`.
pub(super) const START: &str = "start";

/// The same as [`WAKEFUL`]. The difference between the two is the noise.
const AGAIN: &str = "wakeful (again)";

const WORKERS: usize = 4;

/// How long workers live before one is killed. A master takes a worker that dies within a second
/// for one that cannot serve, and pauses before it starts another one.
const GROWN_UP: Duration = Duration::from_millis(1_100);

/// How long to wait for a line of the log.
const PATIENCE: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(2);

/// One start of a server with [`WORKERS`] workers, and its figures.
#[derive(Debug, Clone, Copy)]
pub(super) struct Started {
    /// The time from the start of the program until all workers accept.
    pub(super) whole: Duration,
    /// The time from the end of a worker until its replacement accepts, in nanoseconds. The median
    /// of the workers.
    pub(super) replaced: f64,
    /// The memory of an idle worker that no other process shares, in KiB. The mean of the workers.
    pub(super) private: f64,
    /// The same memory, with the worker's share of what several processes share.
    pub(super) proportional: f64,
}

/// Returns the number of rounds. Each round starts each server once.
pub(super) fn rounds(lab: &Lab<'_>) -> usize {
    lab.rounds.unwrap_or(match lab.size {
        Size::Quick => 3,
        Size::Full => 20,
    })
}

/// Tells the user how long the starts will take.
pub(super) fn expect(lab: &mut Lab<'_>) {
    let rounds = rounds(lab);
    lab.bench.progress.expect(3 * rounds, GROWN_UP + Duration::from_millis(300));
}

pub(super) fn measure(lab: &mut Lab<'_>) -> Result<Measured<Started>, LabError> {
    let names = [WAKEFUL, EXECUTED, AGAIN].map(str::to_owned);
    let rounds = rounds(lab);
    interleaved::measure(lab, START, &names, rounds, |lab, one, label| {
        let name = &names[one];
        let options = contenders::options(if name == AGAIN { WAKEFUL } else { name });
        let server = spec(&lab.program.to_string_lossy(), name, options);
        lab.bench.undisturbed(label, |bench| run(bench, &server))
    })
}

fn spec(program: &str, name: &str, options: &[&str]) -> ServerSpec {
    let workers = WORKERS.to_string();
    let words = [program, "serve", "http", "--listen", "{addr}", "--loops", "1"];
    let words = words.into_iter().chain(["--idle", "park", "--workers", &workers]);
    let argv = words.chain(options.iter().copied()).map(str::to_owned).collect();
    ServerSpec::Command { name: name.to_owned(), argv }
}

fn run(bench: &mut Bench<'_>, spec: &ServerSpec) -> Result<(Started, bool), Failure> {
    let machine = Baseline::take(&[std::process::id()], &bench.machine_cpus).ok();
    let cpus = Some(&bench.machine_cpus[..]);
    let begun = SystemTime::now();
    let server = Server::start_untouched(spec, Ipv4Addr::LOCALHOST.into(), cpus, PATIENCE)?;
    let started = started(&server, begun);
    let started = started.map_err(|error| Failure::LeftOut(error.to_string()))?;
    let outside = machine.and_then(|before| before.outside().ok()).unwrap_or_default();
    Ok((started, outside.exceeds(bench.limits.share)))
}

fn started(server: &Server, begun: SystemTime) -> io::Result<Started> {
    let whole = said(server, begun, |line| line.contains(": all workers accept"))?;
    thread::sleep(GROWN_UP);
    let workers = server.pid().map(children_of).unwrap_or_default();
    if workers.len() != WORKERS {
        return Err(io::Error::other(format!("it has {} workers of {WORKERS}", workers.len())));
    }
    let memory = workers.iter().map(|worker| memory_of(*worker));
    let memory = memory.collect::<io::Result<Vec<_>>>()?;
    let mean = |of: fn(&Memory) -> u64| {
        memory.iter().map(of).sum::<u64>() as f64 / memory.len() as f64 / 1024.0
    };
    let replaced = workers.iter().map(|worker| replace(server, *worker));
    let replaced = replaced.collect::<io::Result<Vec<_>>>()?;
    Ok(Started {
        whole,
        replaced: median(&replaced.iter().map(|took| took.as_nanos() as f64).collect::<Vec<_>>()),
        private: mean(|memory| memory.private),
        proportional: mean(|memory| memory.proportional),
    })
}

/// Kills a worker, and returns how long it takes until the next one accepts.
fn replace(server: &Server, worker: u32) -> io::Result<Duration> {
    let begun = SystemTime::now();
    master::signal(worker, Signal::KILL)?;
    said(server, begun, |line| line.contains(": worker ") && line.ends_with(" accepts"))
}

/// Returns how long after `begun` the server logged a matching line.
fn said(server: &Server, begun: SystemTime, is_it: impl Fn(&str) -> bool) -> io::Result<Duration> {
    let start = Instant::now();
    loop {
        let log = server.last_words();
        let mut lines = log.lines().filter_map(|line| after(line, begun));
        if let Some((after, _)) = lines.find(|(_, line)| is_it(line)) {
            return Ok(after);
        }
        if let Some(how) = server.died() {
            return Err(io::Error::other(how));
        }
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("in {PATIENCE:?} it has only said: {log}")));
        }
        thread::sleep(POLL);
    }
}

/// Returns how long after `begun` a line was logged, and its text. `None` if it was logged before.
fn after(line: &str, begun: SystemTime) -> Option<(Duration, &str)> {
    let (time, line) = line.split_once(' ')?;
    let time = humantime::parse_rfc3339(time).ok()?;
    Some((time.duration_since(begun).ok()?, line))
}

/// Sizes in bytes.
struct Memory {
    private: u64,
    proportional: u64,
}

fn memory_of(process: u32) -> io::Result<Memory> {
    let process = Process::new(process.cast_signed()).map_err(io::Error::other)?;
    let rollup = process.smaps_rollup().map_err(io::Error::other)?;
    let fields = rollup.memory_map_rollup.0.into_iter().next();
    let fields = fields.map(|all| all.extension.map).unwrap_or_default();
    let field = |name: &str| {
        let missing = || io::Error::other(format!("the kernel does not say {name} of a worker"));
        fields.get(name).copied().ok_or_else(missing)
    };
    Ok(Memory { private: field("Private_Dirty")?, proportional: field("Pss")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_has_its_time_and_counts_only_after_the_beginning() {
        let line = "2026-11-27T20:09:18.631970Z [4711]  INFO events: worker 4712 accepts";
        let begun = humantime::parse_rfc3339("2026-11-27T20:09:18.630Z").unwrap();
        let (took, rest) = after(line, begun).unwrap();
        assert_eq!(took, Duration::from_micros(1_970));
        assert!(rest.ends_with(": worker 4712 accepts"), "{rest}");
        assert!(after(line, begun + Duration::from_millis(2)).is_none());
        assert!(after("thread 'main' panicked", begun).is_none());
    }

    #[test]
    fn this_process_has_memory_of_its_own() {
        let memory = memory_of(std::process::id()).unwrap();
        assert!(memory.private > 0);
        assert!(memory.proportional >= memory.private);
    }
}
