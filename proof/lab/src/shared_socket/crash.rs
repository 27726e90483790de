//! The public crash: clients close their connections while their requests are being answered. This
//! takes a bounded time.
//!
//! Every server has the same traffic. A server on Asio whose threads share their sessions is
//! expected to end with AddressSanitizer's report. The same server with a strand for each session
//! is the control.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use wakeful_load::internals::bench::{Bench, Undisturbed};
use wakeful_load::internals::servers::Server;

use super::parts::{CRASH, Extent};
use super::report::Report;
use super::traffic::{Client, Traffic};
use crate::contender::Contender;
use crate::interleaved::{self, Failure, Measured};
use crate::lab::{Lab, LabError};

/// The number of clients at a time.
const CLIENTS: u64 = 8;

const READY_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two checks whether the server has died.
const POLL: Duration = Duration::from_millis(10);

/// The source file whose functions are named in a report.
const SOURCE: &str = "shared-socket-asio.cpp";

/// What happened to a server under that traffic.
#[derive(Debug, Clone)]
pub(super) struct Raced {
    pub(super) seconds: f64,
    pub(super) traffic: Traffic,
    /// How the server ended, if it did.
    pub(super) died: Option<String>,
    pub(super) report: Option<Report>,
}

/// Returns where AddressSanitizer writes. It appends a full stop and the number of the process.
pub(super) fn log() -> PathBuf {
    std::env::temp_dir().join(format!("wakeful-shared-socket-{}", std::process::id()))
}

/// Tells the user how long the race will take.
pub(super) fn expect(lab: &mut Lab<'_>, contenders: &[Contender], extent: &Extent) {
    lab.bench.progress.expect(extent.rounds * contenders.len(), extent.race);
}

/// Races each contender in turn. Other programs do not spoil this, because nothing is timed.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    contenders: &[Contender],
    extent: &Extent,
) -> Result<Measured<Raced>, LabError> {
    let names: Vec<String> = contenders.iter().map(|contender| contender.name.clone()).collect();
    let mut seed = lab.seed;
    interleaved::measure(lab, CRASH, &names, extent.rounds, |lab, one, label| {
        seed += CLIENTS;
        lab.bench.progress.begin(label);
        let value = race(&mut lab.bench, &contenders[one], extent.race, seed)?;
        lab.bench.progress.end();
        Ok(Undisturbed { value, repeated: 0, spoilt: false })
    })
}

fn race(
    bench: &mut Bench<'_>,
    contender: &Contender,
    within: Duration,
    seed: u64,
) -> Result<Raced, Failure> {
    let left_out = |error: &dyn std::fmt::Display| Failure::LeftOut(error.to_string());
    let cpus = contender.cpus.of(bench);
    let mut server = Server::start(&contender.server, cpus.as_deref(), READY_WITHIN)?;
    let addr: SocketAddr = server.addr().parse().map_err(|error| left_out(&error))?;
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    let (traffic, died) = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let client = Client::new(&format!("client-{client}"), seed + client);
                let stop = &stop;
                thread::Builder::new().spawn_scoped(scope, move || client.run(addr, stop))
            })
            .collect::<io::Result<_>>()
            .inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
        let mut died = None;
        while died.is_none() && begun.elapsed() < within && !bench.is_interrupted() {
            bench.progress.tick();
            thread::sleep(POLL);
            died = server.died();
        }
        stop.store(true, Ordering::Relaxed);
        let mut traffic = Traffic::default();
        for client in clients {
            traffic.add(client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        // The last requests may have killed the server.
        Ok((traffic, died.or_else(|| server.died())))
    })
    .map_err(|error: io::Error| left_out(&error))?;
    let seconds = begun.elapsed().as_secs_f64();
    if bench.is_interrupted() {
        return Err(Failure::Interrupted);
    }
    let report = server.pid().and_then(|pid| {
        let path = log().with_extension(pid.to_string());
        let text = fs::read_to_string(&path).ok()?;
        fs::remove_file(&path).ok();
        Report::parse(&text, SOURCE)
    });
    server.stop();
    Ok(Raced { seconds, traffic, died, report })
}
