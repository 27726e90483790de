//! A frontend that calls a backend: two echo services of the same contender, a connection to the backend for each of the client's.
//!
//! With a CPU for each the frontend has the first and the backend the second; with two CPUs, one of which is the generator's, they share the first.

use std::time::Duration;

use wakeful_load::bench::{BenchError, Companion, Load, Undisturbed};
use wakeful_load::series::Figures;
use wakeful_load::servers::{Server, ServerSpec};

use crate::contender::Contender;
use crate::interleaved::{self, Failure, Measured};
use crate::lab::{Lab, LabError};

/// How long a backend may take until it listens.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Where the two run, for the reader.
pub(super) fn places(lab: &Lab<'_>) -> String {
    match lab.bench.server_cpus.as_deref() {
        None => "Wherever the kernel puts them.".to_owned(),
        Some([both]) => {
            format!("Frontend and backend share CPU {both}, the client has CPU {}.", last(lab))
        }
        Some(cpus) => format!(
            "The frontend has CPU {}, the backend CPU {}, the client CPU {}.",
            cpus[0],
            cpus[1],
            last(lab)
        ),
    }
}

fn last(lab: &Lab<'_>) -> usize {
    lab.bench.cpu.unwrap_or_default()
}

/// Tells the user how long it will take.
pub(super) fn expect(lab: &mut Lab<'_>, contenders: &[Contender], load: &Load, rounds: usize) {
    let each = lab.bench.expected_time(load) + Duration::from_millis(100);
    lab.bench.progress.expect(rounds * contenders.len(), each);
}

/// Measures chains of each contender. The CPU share is that of both processes.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    part: &str,
    contenders: &[Contender],
    load: &Load,
    rounds: usize,
) -> Result<Measured<Figures>, LabError> {
    let names: Vec<_> = contenders.iter().map(|one| one.name.clone()).collect();
    let mut round = vec![0; contenders.len()];
    interleaved::measure(lab, part, &names, rounds, |lab, one, label| {
        let mut load = load.clone();
        load.plan.seed += round[one];
        round[one] += 1;
        let own_cpus = lab.bench.server_cpus.clone();
        let cpus = own_cpus.as_deref().unwrap_or_default();
        let backend_cpus = cpus.get(1).or(cpus.first()).map(|cpu| vec![*cpu]);
        let backend = Server::start(&contenders[one].server, backend_cpus.as_deref(), READY_WITHIN);
        let mut backend = Backend(backend.map_err(BenchError::from)?);
        let frontend = calling(&contenders[one].server, backend.0.addr());
        lab.bench.server_cpus = cpus.first().map(|cpu| vec![*cpu]);
        let block = lab.bench.block_beside(&frontend, &load, label, &mut backend);
        lab.bench.server_cpus = own_cpus;
        let block = block?;
        if block.measurement.interrupted {
            return Err(Failure::Interrupted);
        }
        let value = Figures::of(&block);
        Ok(Undisturbed { value, repeated: block.repeated, spoilt: block.spoilt })
    })
}

/// The same service as a frontend of that backend.
fn calling(server: &ServerSpec, backend: &str) -> ServerSpec {
    let ServerSpec::Command { name, argv } = server else { return server.clone() };
    let flags = ["--backend", backend].map(str::to_owned);
    let argv = argv.iter().cloned().chain(flags).collect();
    ServerSpec::Command { name: name.clone(), argv }
}

struct Backend(Server);

impl Companion for Backend {
    fn pids(&self) -> Vec<u32> {
        self.0.pids()
    }
}
