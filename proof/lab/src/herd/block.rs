//! One measurement: a fresh server whose workers are asleep, and then a number of connections,
//! while the kernel records which threads are woken.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use wakeful_load::internals::bench::Bench;
use wakeful_load::internals::procfs::{ProcessCpu, threads_of};
use wakeful_load::internals::quiet::Baseline;
use wakeful_load::internals::servers::Server;

use super::case::Case;
use super::client::{self, Work};
use super::contenders::Herd;
use super::trace::Trace;
use super::woken::Woken;
use crate::interleaved::Failure;
use crate::scratch::Scratch;

/// How long a server may take until it listens, and then until it is asleep.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// A server that uses no CPU for this long is asleep.
const ASLEEP: Duration = Duration::from_millis(50);

/// The number of connections before all workers are asleep again.
const WARM_UP: usize = 100;

/// The bytes that a connection takes in the trace besides wakes: one accept and two reads.
const BYTES_A_CONNECTION: usize = 256;
/// The bytes that each worker adds to that: one wake, and one accept that fails.
const BYTES_A_WORKER: usize = 96;

/// The result of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Served {
    pub(super) connections: f64,
    pub(super) workers: f64,
    pub(super) seconds: f64,
    /// What the kernel recorded, of all threads together. `None` without the trace.
    pub(super) woken: Option<Woken>,
    /// The connections that the busiest worker took, if they were counted.
    pub(super) busiest: Option<f64>,
    /// The accepts for which no connection was left, if they were counted.
    pub(super) refused: Option<f64>,
}

impl Served {
    /// Returns the number of woken threads per connection.
    pub(super) fn wakes(&self) -> Option<f64> {
        Some(self.woken?.wakes as f64 / self.connections)
    }

    /// Returns the number of threads per connection that were woken in vain.
    pub(super) fn in_vain(&self) -> Option<f64> {
        Some(self.woken?.in_vain() as f64 / self.connections)
    }

    /// Returns the number of threads per connection that were woken for bytes of a connection that
    /// they had.
    pub(super) fn for_read(&self) -> Option<f64> {
        Some(self.woken?.for_read as f64 / self.connections)
    }

    /// Returns the number of failed accepts per connection.
    pub(super) fn refused(&self) -> Option<f64> {
        Some(self.refused? / self.connections)
    }

    /// Returns the connections of the busiest worker, divided by the mean.
    pub(super) fn spread(&self) -> Option<f64> {
        Some(self.busiest? * self.workers / self.connections)
    }

    /// Returns the connections per second.
    pub(super) fn rate(&self) -> f64 {
        self.connections / self.seconds
    }
}

/// The counts of a worker of `proof/peers/herd`.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Counted {
    accepts: u64,
    /// Not known for wakeful's workers.
    in_vain: Option<u64>,
}

/// Measures once. Also returns whether other programs disturbed the measurement.
pub(super) fn run(
    bench: &mut Bench<'_>,
    herd: &Herd,
    case: &Case,
    trace: Option<&Trace>,
) -> Result<(Served, bool), Failure> {
    let left_out = |error: io::Error| Failure::LeftOut(error.to_string());
    let machine = Baseline::take(&[std::process::id()], &bench.machine_cpus).ok();
    let dir = Scratch::new().map_err(left_out)?;
    let socket = dir.path().join("socket");
    let argv = herd.argv(case.workers, &socket, dir.path()).map_err(left_out)?;
    let cpus = Some(&bench.machine_cpus[..]);
    let server = Server::start_on_path(&herd.name, &argv, &socket, cpus, READY_WITHIN)?;
    // If something fails from here on, the reason may be that the server died.
    let died = |error: io::Error| Failure::LeftOut(server.died().unwrap_or(error.to_string()));
    let interrupted = bench.interrupted;
    let (path, body) = herd.asked(case.work);
    let mut work = Work {
        socket: &socket,
        path: &path,
        body,
        clients: case.clients,
        connections: WARM_UP,
        pause: case.pause,
    };
    // Waits until all workers are there.
    until_asleep(&server).map_err(died)?;
    client::run(&work, interrupted).map_err(died)?;
    until_asleep(&server).map_err(died)?;

    let threads: Vec<u32> = server.pids().into_iter().flat_map(threads_of).collect();
    if let Some(trace) = trace {
        let bytes = case.connections * (BYTES_A_CONNECTION + BYTES_A_WORKER * case.workers);
        trace.aim_at(&threads, bytes).map_err(left_out)?;
    }
    work.connections = case.before;
    client::run(&work, interrupted).map_err(died)?;
    let counts = || if herd.is_plain() { counted(&socket).map(Some) } else { Ok(None) };
    let before = counts().map_err(died)?;
    if let Some(trace) = trace {
        trace.start().map_err(left_out)?;
    }
    work.connections = case.connections;
    let took = client::run(&work, interrupted).map_err(died)?.ok_or(Failure::Interrupted)?;
    // The clients do not wait until the server has closed the last connections.
    until_asleep(&server).map_err(died)?;
    if let Some(trace) = trace {
        trace.stop().map_err(left_out)?;
    }
    let after = counts().map_err(died)?;
    let outside = machine.and_then(|before| before.outside().ok()).unwrap_or_default();
    drop(server);

    let mut served = Served {
        connections: case.connections as f64,
        workers: case.workers as f64,
        seconds: took.as_secs_f64(),
        woken: None,
        busiest: None,
        refused: None,
    };
    if let Some((before, after)) = before.zip(after) {
        served.count(&before, &after).map_err(left_out)?;
    }
    if let Some(trace) = trace {
        let found: Vec<Woken> = trace.read(&threads).map_err(left_out)?.into_values().collect();
        served.trace(&found).map_err(left_out)?;
    }
    Ok((served, outside.exceeds(bench.limits.share)))
}

impl Served {
    /// Adds what the server's workers counted.
    fn count(&mut self, before: &[Counted], after: &[Counted]) -> io::Result<()> {
        let pairs = || before.iter().zip(after);
        let accepts = || pairs().map(|(before, after)| after.accepts - before.accepts);
        // The request for the counts is itself one of the connections.
        let all = accepts().sum::<u64>() as f64;
        if all != self.connections + 1.0 {
            let error =
                format!("its workers counted {all} of {} connections", self.connections + 1.0);
            return Err(io::Error::other(error));
        }
        self.busiest = accepts().max().map(|most| most as f64);
        let refused = pairs().map(|(before, after)| Some(after.in_vain? - before.in_vain?));
        self.refused = refused.sum::<Option<u64>>().map(|refused| refused as f64);
        Ok(())
    }

    /// Adds what the kernel saw each thread do, which is more than the workers count.
    fn trace(&mut self, threads: &[Woken]) -> io::Result<()> {
        let mut all = Woken::default();
        threads.iter().for_each(|one| all.add(one));
        if all.accepts as f64 != self.connections {
            let error = format!("the trace has {} accepts of {}", all.accepts, self.connections);
            return Err(io::Error::other(error));
        }
        self.woken = Some(all);
        self.busiest = threads.iter().map(|one| one.accepts).max().map(|most| most as f64);
        self.refused = Some(all.refused as f64);
        Ok(())
    }
}

fn counted(socket: &Path) -> io::Result<Vec<Counted>> {
    let answer = client::get(socket, "/counts")?;
    Ok(serde_json::from_slice(client::body(&answer).unwrap_or_default())?)
}

/// Waits until no thread of the server runs any more.
fn until_asleep(server: &Server) -> io::Result<()> {
    let pid = server.pid().ok_or(io::ErrorKind::NotFound)?;
    let deadline = Instant::now() + READY_WITHIN;
    let mut before = ProcessCpu::read_tree(pid)?;
    loop {
        thread::sleep(ASLEEP);
        let now = ProcessCpu::read_tree(pid)?;
        // A server that always spins is never asleep.
        if now.used_since(&before).total().is_zero() || Instant::now() > deadline {
            return Ok(());
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Served {
        let (connections, workers, seconds) = (30.0, 3.0, 0.5);
        Served { connections, workers, seconds, woken: None, busiest: None, refused: None }
    }

    #[test]
    fn the_counts_of_workers_have_every_connection_and_the_request_for_them() {
        let workers = |of: [(u64, Option<u64>); 3]| {
            of.map(|(accepts, in_vain)| Counted { accepts, in_vain }).to_vec()
        };
        let before = workers([(5, Some(1)), (0, Some(0)), (1, Some(0))]);
        let mut one = served();
        one.count(&before, &workers([(10, Some(1)), (25, Some(6)), (2, Some(0))])).unwrap();
        assert_eq!((one.spread(), one.refused(), one.wakes()), (Some(2.5), Some(0.2), None));
        let lost = workers([(10, Some(1)), (24, Some(6)), (2, Some(0))]);
        assert!(served().count(&before, &lost).unwrap_err().to_string().contains("30 of 31"));
        let before = workers([(0, None), (0, None), (0, None)]);
        let mut one = served();
        one.count(&before, &workers([(31, None), (0, None), (0, None)])).unwrap();
        assert_eq!(one.refused(), None, "nobody counted these");
    }

    #[test]
    fn a_trace_has_every_connection_or_is_none() {
        let thread = |wakes, accepts| Woken { wakes, for_accept: 4, accepts, ..Woken::default() };
        let mut one = served();
        one.trace(&[thread(10, 10), thread(5, 20), Woken::default()]).unwrap();
        assert_eq!((one.wakes(), one.in_vain()), (Some(0.5), Some(7.0 / 30.0)));
        assert_eq!((one.spread(), one.rate()), (Some(2.0), 60.0));
        let mut one = served();
        assert!(one.trace(&[thread(10, 10), thread(5, 19)]).is_err());
        assert_eq!(one.woken, None);
    }
}
