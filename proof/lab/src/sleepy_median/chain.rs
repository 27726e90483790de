//! A frontend that calls a backend. The two are echo services of the same contender, with a
//! connection to the backend for each connection of the client, or a proxy and an HTTP service
//! ([`proxied`](super::proxied)).
//!
//! If there is a CPU for each, the frontend has the first one and the backend the second. With two
//! CPUs, one of which is the generator's, the two services share the first.

use std::time::Duration;

use wakeful_load::internals::bench::{BenchError, Companion, Load, Undisturbed};
use wakeful_load::internals::series::Figures;
use wakeful_load::internals::servers::{Server, ServerSpec};

use crate::contender::Contender;
use crate::interleaved::{self, Failure, Measured};
use crate::lab::{Lab, LabError};

/// How long a backend may take until it listens.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Stands for the backend's address in the arguments of a frontend.
pub(super) const BACKEND: &str = "{backend}";

/// Two services, one of which calls the other.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    pub(super) name: String,
    pub(super) backend: ServerSpec,
    /// The frontend's command, which contains [`BACKEND`].
    pub(super) frontend: Vec<String>,
}

impl Chain {
    /// Makes a chain of two echo services of a contender.
    pub(super) fn of_echo(contender: &Contender) -> Self {
        let ServerSpec::Command { argv, .. } = &contender.server else {
            unreachable!("a contender is a command");
        };
        let flags = ["--backend", BACKEND].map(str::to_owned);
        let frontend = argv.iter().cloned().chain(flags).collect();
        Self { name: contender.name.clone(), backend: contender.server.clone(), frontend }
    }

    fn frontend(&self, backend: &str) -> ServerSpec {
        let argv = self.frontend.iter().map(|word| word.replace(BACKEND, backend)).collect();
        ServerSpec::Command { name: self.name.clone(), argv }
    }
}

/// Describes for the reader where the two services run.
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

/// Tells the user how long the chains will take.
pub(super) fn expect(lab: &mut Lab<'_>, chains: &[Chain], load: &Load, rounds: usize) {
    let each = lab.bench.expected_time(load) + Duration::from_millis(100);
    lab.bench.progress.expect(rounds * chains.len(), each);
}

/// Measures each chain. The CPU share is the sum of both processes.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    part: &str,
    chains: &[Chain],
    load: &Load,
    rounds: usize,
) -> Result<Measured<Figures>, LabError> {
    let names: Vec<_> = chains.iter().map(|chain| chain.name.clone()).collect();
    let mut round = vec![0; chains.len()];
    interleaved::measure(lab, part, &names, rounds, |lab, one, label| {
        let mut load = load.clone();
        let seed = load.plan.get_seed() + round[one];
        load.plan = load.plan.seed(seed);
        round[one] += 1;
        let own_cpus = lab.bench.server_cpus.clone();
        let cpus = own_cpus.as_deref().unwrap_or_default();
        let backend_cpus = cpus.get(1).or(cpus.first()).map(|cpu| vec![*cpu]);
        let backend = Server::start(&chains[one].backend, backend_cpus.as_deref(), READY_WITHIN);
        let mut backend = Backend(backend.map_err(BenchError::from)?);
        let frontend = chains[one].frontend(backend.0.addr());
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

struct Backend(Server);

impl Companion for Backend {
    fn pids(&self) -> Vec<u32> {
        self.0.pids()
    }
}
