//! The real server under a real load on this machine: `wakeful serve echo` on one CPU, the
//! generator on another one, 1 KiB over 32 connections.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use thiserror::Error;
use wakeful::internals::GovernorLimits;
use wakeful_load::internals::bench::{Bench, BenchError, Load};
use wakeful_load::internals::progress::Progress;
use wakeful_load::internals::series::Figures;
use wakeful_load::internals::servers::ServerSpec;
use wakeful_load::{Plan, Protocol, Requests, Schedule, Target, Template};

use crate::policy::Policy;

/// 1 KiB each way, in frames.
const BYTES: usize = 1024;
const CONNECTIONS: usize = 32;
const WARM_UP: Duration = Duration::from_millis(200);

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// The block failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// This machine cannot be measured.
    #[error("{0}")]
    Machine(String),
}

/// A machine to measure on.
#[derive(Debug)]
pub struct Laboratory<'a> {
    bench: Bench<'a>,
    program: PathBuf,
    /// How many blocks were disturbed by other programs, although they were measured again.
    spoilt: usize,
}

/// The result of a block.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// The median response that clients see, in nanoseconds.
    pub p50: f64,
    /// The share of a CPU that the server used.
    pub cpu: f64,
    /// The CPU for each answer, in nanoseconds.
    pub cpu_per_request: f64,
}

impl<'a> Laboratory<'a> {
    /// Puts servers on the first CPU that this process may use, and the generator on the last one.
    /// `program` is `wakeful`.
    ///
    /// # Errors
    ///
    /// When there is no second CPU.
    pub fn new(program: &Path, interrupted: &'a AtomicBool) -> Result<Self, MeasureError> {
        let machine = |error: std::io::Error| MeasureError::Machine(error.to_string());
        let mut bench =
            Bench::on_this_machine(interrupted, Progress::to_stderr()).map_err(machine)?;
        let Some(cpu) = bench.server_cpus.as_ref().and_then(|cpus| cpus.first().copied()) else {
            return Err(MeasureError::Machine(
                "this needs two CPUs: one for the server, one for the generator".to_owned(),
            ));
        };
        bench.give_servers(&[cpu]).map_err(machine)?;
        bench.limits.patience = Duration::from_secs(3);
        bench.most_repeats = 1;
        Ok(Self { bench, program: program.to_owned(), spoilt: 0 })
    }

    /// The server's CPU.
    #[must_use]
    pub fn server_cpu(&self) -> usize {
        self.bench.server_cpus.as_ref().map_or(0, |cpus| cpus[0])
    }

    /// Returns how many blocks were disturbed by other programs.
    #[must_use]
    pub fn spoilt(&self) -> usize {
        self.spoilt
    }

    /// Announces that this many blocks of about this length will be measured.
    pub fn expect(&mut self, blocks: usize, each: Duration) {
        self.bench.progress.expect(blocks, each + WARM_UP + Duration::from_millis(200));
    }

    /// Measures one block.
    ///
    /// # Errors
    ///
    /// When the server does not start or dies, too little was measured, or the user has ended the
    /// measurement.
    pub fn measure(
        &mut self,
        policy: Policy,
        schedule: Schedule,
        duration: Duration,
        seed: u64,
    ) -> Result<Measured, MeasureError> {
        // The block replaces the target by its server.
        let nowhere = Target::Unix("/".into());
        let requests =
            Requests::new(Protocol::Frames, &Template::of_size(BYTES)).map_err(BenchError::from)?;
        let label = format!("{} {schedule}", policy.name());
        let plan = Plan::new(nowhere)
            .requests(requests)
            .in_flight((schedule == Schedule::Closed).then_some(1))
            .schedule(schedule)
            .connections(CONNECTIONS)
            .seed(seed)
            .warm_up(WARM_UP)
            .duration(duration);
        let load = Load { plan, slow_clients: 0 };
        let block = self.bench.block(&self.server(policy)?, &load, &label)?;
        self.spoilt += usize::from(block.spoilt);
        if block.measurement.interrupted {
            return Err(MeasureError::Machine("interrupted".to_owned()));
        }
        let figures = Figures::of(&block);
        let all = (figures.p50, figures.cpu_share, figures.cpu_per_request);
        let (Some(p50), Some(cpu), Some(seconds)) = all else {
            return Err(MeasureError::Machine(format!("{label}: too few answers to judge by")));
        };
        Ok(Measured { p50, cpu, cpu_per_request: seconds * 1e9 })
    }

    fn server(&self, policy: Policy) -> Result<ServerSpec, MeasureError> {
        let idle = match policy {
            Policy::Window(0) => vec!["park".to_owned()],
            Policy::Spin => vec!["spin".to_owned()],
            Policy::Adaptive(GovernorLimits { hit_rate, max_window, max_cpu }) => [
                "adaptive".to_owned(),
                format!("--hit-rate={hit_rate}"),
                format!("--max-window={max_window}ns"),
                format!("--max-cpu={max_cpu}"),
            ]
            .to_vec(),
            Policy::Window(_) | Policy::Hold(_) => {
                let text = "it is measured parking, spinning and adapting: the server has no fixed windows, and what it may hold depends on the machine";
                return Err(MeasureError::Machine(text.to_owned()));
            }
        };
        let program = self.program.to_string_lossy().into_owned();
        let serve = ["serve", "echo", "--loops", "1", "--listen", "{addr}", "--idle"];
        let argv = std::iter::once(program).chain(serve.map(str::to_owned)).chain(idle).collect();
        Ok(ServerSpec::Command { name: policy.name(), argv })
    }
}
