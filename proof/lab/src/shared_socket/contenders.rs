//! The servers of `shared-socket`.

use std::path::Path;

use wakeful_load::internals::bench::Bench;

use super::parts::{CRASH, TABLE};
use crate::contender::{Contender, Cpus};
use crate::lab::Lab;
use crate::probe::{Probe, ReadyProbe, Source};

pub(super) const ONE_LOOP: &str = "wakeful, one loop";
pub(super) const LOOPS: &str = "wakeful, loops";
/// The same as [`LOOPS`]. The difference between the two is the noise.
pub(super) const AGAIN: &str = "wakeful, loops (again)";
/// The service and the keys of [`POLLER`] on loops that own their sockets. So only the network
/// layer differs.
pub(super) const OWNED: &str = "wakeful, locked keys";
pub(super) const POLLER: &str = "one poller, shared";
pub(super) const REDIS: &str = "redis-server";

pub(super) const SHARED: &str = "Asio, sessions shared";
pub(super) const STRAND: &str = "Asio, a strand for each";

/// The threads of the servers that are raced, whatever the number of CPUs. A race needs threads.
const RACED_THREADS: &str = "4";

/// Returns the programs besides wakeful, each with the part that needs it first.
pub(super) fn probes() -> Vec<Probe> {
    let poller = Probe {
        name: POLLER.to_owned(),
        part: TABLE,
        peer: Some("shared-poller"),
        program: "shared-poller",
        source: Source::Cargo { package: "shared-poller", features: "" },
        ..Probe::default()
    };
    let owned = Probe {
        name: OWNED.to_owned(),
        part: TABLE,
        program: "owned-sockets",
        source: Source::Cargo { package: "shared-poller", features: "wakeful" },
        ..Probe::default()
    };
    let redis = Probe {
        name: REDIS.to_owned(),
        part: TABLE,
        peer: Some("redis-server"),
        program: "redis-server",
        source: Source::Installed { package: "redis-server" },
        ..Probe::default()
    };
    let asio = Probe {
        name: SHARED.to_owned(),
        part: CRASH,
        peer: Some("asio"),
        program: "shared-socket-asio",
        ..Probe::default()
    };
    vec![owned, poller, redis, asio]
}

/// Returns the threads of a server that has several: as many as there are CPUs besides the
/// generator's, and at least two.
pub(super) fn threads(bench: &Bench<'_>) -> usize {
    bench.server_cpus.as_ref().map_or(1, Vec::len).max(2)
}

/// Returns the servers of the table. All have the same CPUs: all but the generator's.
pub(super) fn serving(lab: &Lab<'_>) -> Vec<Contender> {
    let threads = threads(&lab.bench).to_string();
    let mut all = vec![
        wakeful(lab, ONE_LOOP, "1", Cpus::Others),
        wakeful(lab, LOOPS, &threads, Cpus::Others),
        wakeful(lab, AGAIN, &threads, Cpus::Others),
    ];
    all.extend(others(lab, &threads, Cpus::Others));
    all
}

/// Returns the servers of the crash. They have all CPUs, and so do their clients.
pub(super) fn raced(lab: &Lab<'_>) -> Vec<Contender> {
    let mut all = Vec::new();
    if let Some(asio) = ready(lab, "shared-socket-asio") {
        for (name, variant) in [(SHARED, "shared"), (STRAND, "strand")] {
            let log = format!("ASAN_OPTIONS=log_path={}", super::crash::log().display());
            let program = asio.path.to_string_lossy();
            let words = [&log, &*program, "--workers", RACED_THREADS, "--variant", variant];
            let words = [&words[..], &["--listen", "{addr}"]].concat();
            all.push(Contender::new(name, Cpus::All, Path::new("env"), &words));
        }
    }
    all.push(wakeful(lab, LOOPS, RACED_THREADS, Cpus::All));
    all.extend(others(lab, RACED_THREADS, Cpus::All));
    all
}

fn wakeful(lab: &Lab<'_>, name: &str, loops: &str, cpus: Cpus) -> Contender {
    let words = ["serve", "kv", "--loops", loops, "--listen", "{addr}"];
    Contender::new(name, cpus, &lab.program, &words)
}

fn others(lab: &Lab<'_>, threads: &str, cpus: Cpus) -> impl Iterator<Item = Contender> {
    let of = |name: &str, program: &str| {
        let words = ["--workers", threads, "--listen", "{addr}"];
        ready(lab, program).map(|ready| Contender::new(name, cpus, &ready.path, &words))
    };
    let (owned, poller) = (of(OWNED, "owned-sockets"), of(POLLER, "shared-poller"));
    let redis = ready(lab, "redis-server").map(|ready| {
        // Redis keeps its data only in memory, as the others do.
        let words = ["--port", "{port}", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        Contender::new(REDIS, cpus, &ready.path, &words)
    });
    owned.into_iter().chain(poller).chain(redis)
}

fn ready<'a>(lab: &'a Lab<'_>, program: &str) -> Option<&'a ReadyProbe> {
    lab.probes.iter().find(|ready| ready.probe.program == program)
}
