//! Blocks, the unit of every measurement. A block waits for a quiet machine, starts a fresh server,
//! loads it by the plan, and reads the server's CPU time over exactly the measured time.
//!
//! A block that other programs disturbed is measured again, a bounded number of times, and the
//! result says how often. Only the CPU time of others counts as a disturbance, not how late the
//! generator was: a block in which the server slowed the generator down is kept.

mod companion;
mod watch;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

pub use self::companion::Companion;
use self::watch::{BlockWatch, MeasuredCpu};
use crate::affinity;
use crate::generator::{LoadError, Measurement, Plan};
use crate::progress::Progress;
use crate::protocol::InvalidTemplate;
use crate::quiet::{self, Baseline};
use crate::results::Cpu;
use crate::servers::{Server, ServerError, ServerSpec};
use crate::slow::SlowClients;
use crate::target::{InvalidTarget, Target};

/// After a block that nobody disturbed, the machine counts as quiet for this long.
const QUIET_LASTS: Duration = Duration::from_secs(1);

/// How long a server that is started here may take until it accepts connections.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Where and how carefully blocks are measured.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The generator's CPU, which nothing else should use. `None` leaves the choice to the kernel.
    pub cpu: Option<usize>,
    /// The CPUs of servers that are started here. `None` leaves the choice to the kernel.
    pub server_cpus: Option<Vec<usize>>,
    /// The CPUs that have to be quiet, and that may be used: those of the generator and of the
    /// servers.
    pub machine_cpus: Vec<usize>,
    /// The process of a server that runs already. Its CPU time is measured.
    pub pid: Option<u32>,
    /// How much CPU time other programs may use while the machine counts as quiet.
    pub limits: quiet::Limits,
    /// How often a block may be measured again because it was spoilt.
    pub most_repeats: usize,
    /// Set by Ctrl-C. The block then ends with what it has.
    pub interrupted: &'a AtomicBool,
    /// Shows the user how far the work is.
    pub progress: Progress,
    /// When the last undisturbed block ended.
    pub(crate) was_quiet: Option<Instant>,
}

/// The load of a block.
#[derive(Debug, Clone)]
pub struct Load {
    /// The plan. Its target is replaced by the server's address.
    pub plan: Plan,
    /// The number of slow clients that also connect. They send one byte at a time.
    pub slow_clients: usize,
}

/// One measured block.
#[derive(Debug, Clone)]
pub struct Block {
    /// What was measured.
    pub measurement: Measurement,
    /// The server's CPU time during the measured time, if its process is known.
    pub cpu: Option<Cpu>,
    /// Whether processes of the server started or ended during the measured time. Its CPU time is
    /// not known then.
    pub processes_changed: bool,
    /// How many CPUs' worth of time the hypervisor took.
    pub steal: f64,
    /// How many CPUs' worth of time other programs and the hypervisor used.
    pub outside: f64,
    /// How many blocks were thrown away before this one.
    pub repeated: usize,
    /// Whether this block was spoilt as well, and was not measured again, because all repeats were
    /// used or the user interrupted the program.
    pub spoilt: bool,
}

/// The result of [`Bench::undisturbed`].
#[derive(Debug, Clone, Copy)]
pub struct Undisturbed<T> {
    /// The last value that was measured.
    pub value: T,
    /// How many values were thrown away before it.
    pub repeated: usize,
    /// Whether this value was spoilt as well, and was not measured again, because all repeats were
    /// used or the user interrupted the program.
    pub spoilt: bool,
}

/// The reason why there is no block.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The server did not start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The server's address is invalid.
    #[error(transparent)]
    Target(#[from] InvalidTarget),
    /// The request is invalid.
    #[error(transparent)]
    Request(#[from] InvalidTemplate),
    /// The load failed.
    #[error("{server}: {error}")]
    Load {
        /// The server's name.
        server: String,
        /// The error.
        error: LoadError,
    },
    /// The companion failed.
    #[error("beside {server}: {error}")]
    Companion {
        /// The server's name.
        server: String,
        /// The error.
        error: io::Error,
    },
    /// The kernel refused something.
    #[error("{doing}: {error}")]
    Kernel {
        /// What the program tried to do.
        doing: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}

impl BenchError {
    /// Returns whether the user ended the measurement, and nothing failed.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        matches!(self, Self::Load { error: LoadError::Interrupted, .. })
    }
}

fn kernel(doing: &'static str) -> impl FnOnce(io::Error) -> BenchError {
    move |error| BenchError::Kernel { doing, error }
}

impl<'a> Bench<'a> {
    /// Makes a bench that uses all CPUs that this process may use: the last one for the generator,
    /// and the others for servers. If there is only one CPU, nothing is pinned.
    ///
    /// # Errors
    /// The kernel does not say which CPUs this process may use.
    pub fn on_this_machine(interrupted: &'a AtomicBool, progress: Progress) -> io::Result<Self> {
        let cpus = affinity::allowed_cpus()?;
        let (cpu, others) =
            cpus.split_last().map_or((None, &[][..]), |(last, others)| (Some(*last), others));
        Ok(Self {
            cpu: cpu.filter(|_| !others.is_empty()),
            server_cpus: (!others.is_empty()).then(|| others.to_vec()),
            machine_cpus: cpus.clone(),
            pid: None,
            limits: quiet::Limits::default(),
            most_repeats: 3,
            interrupted,
            progress,
            was_quiet: None,
        })
    }

    /// Gives the generator another CPU. The servers get the others.
    ///
    /// # Errors
    /// This process may not use the CPU.
    pub fn give_generator(&mut self, cpu: usize) -> io::Result<()> {
        self.check(&[cpu])?;
        self.cpu = Some(cpu);
        let others: Vec<usize> =
            self.machine_cpus.iter().copied().filter(|other| *other != cpu).collect();
        self.server_cpus = (!others.is_empty()).then_some(others);
        Ok(())
    }

    /// Gives these CPUs to the servers that are started here.
    ///
    /// # Errors
    /// This process may not use one of them.
    pub fn give_servers(&mut self, cpus: &[usize]) -> io::Result<()> {
        self.check(cpus)?;
        self.server_cpus = Some(cpus.to_vec());
        Ok(())
    }

    fn check(&self, cpus: &[usize]) -> io::Result<()> {
        match cpus.iter().find(|cpu| !self.machine_cpus.contains(cpu)) {
            Some(cpu) => Err(io::Error::other(format!(
                "this process may not use CPU {cpu}; it may use {}",
                affinity::format_cpus(&self.machine_cpus)
            ))),
            None => Ok(()),
        }
    }

    /// Returns whether the user has interrupted the program.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Returns about how long a block takes. The progress display estimates the remaining time with
    /// it.
    #[must_use]
    pub fn expected_time(&self, load: &Load) -> Duration {
        load.plan.warm_up + load.plan.duration + Duration::from_millis(200)
    }

    /// Measures one block, and measures it again if other programs spoilt it.
    ///
    /// # Errors
    /// The server does not start, cannot be reached or dies, or the user ended the measurement
    /// before anything was measured.
    pub fn block(
        &mut self,
        spec: &ServerSpec,
        load: &Load,
        label: &str,
    ) -> Result<Block, BenchError> {
        self.block_beside(spec, load, label, &mut ())
    }

    /// Like [`block`](Self::block), but with a companion.
    ///
    /// # Errors
    /// The errors of [`block`](Self::block), and those of the companion.
    pub fn block_beside(
        &mut self,
        spec: &ServerSpec,
        load: &Load,
        label: &str,
        companion: &mut (dyn Companion + Send),
    ) -> Result<Block, BenchError> {
        let measured = self.undisturbed(label, |bench| {
            let block = bench.try_block(spec, load, companion)?;
            let spoilt = block.spoilt;
            Ok::<_, BenchError>((block, spoilt))
        })?;
        Ok(Block { repeated: measured.repeated, ..measured.value })
    }

    /// Measures anything on a quiet machine, and measures it again if it was spoilt. `measure` also
    /// returns whether it was.
    ///
    /// # Errors
    /// The errors of `measure`, and those of waiting for a quiet machine.
    pub fn undisturbed<T, E: From<BenchError>>(
        &mut self,
        label: &str,
        mut measure: impl FnMut(&mut Self) -> Result<(T, bool), E>,
    ) -> Result<Undisturbed<T>, E> {
        self.progress.begin(label);
        let mut repeated = 0;
        loop {
            self.wait_for_quiet()?;
            let (value, spoilt) = measure(self)?;
            self.was_quiet = (!spoilt).then(Instant::now);
            if !spoilt || repeated == self.most_repeats || self.is_interrupted() {
                self.progress.end();
                return Ok(Undisturbed { value, repeated, spoilt });
            }
            repeated += 1;
        }
    }

    /// Waits until other programs leave the machine alone, for a bounded time. Returns at once soon
    /// after a block that nobody disturbed.
    fn wait_for_quiet(&mut self) -> Result<(), BenchError> {
        if self.was_quiet.is_some_and(|at| at.elapsed() < QUIET_LASTS) {
            return Ok(());
        }
        let (progress, interrupted) = (&mut self.progress, self.interrupted);
        let ours = [std::process::id()];
        let waited = quiet::wait_for_quiet(&self.limits, &ours, &self.machine_cpus, &mut |_| {
            progress.tick();
            !interrupted.load(Ordering::Relaxed)
        });
        waited.map(drop).map_err(kernel("cannot read the CPUs' use"))
    }

    /// Starts a server and stops it again, so that a server that cannot be started is noticed
    /// before anything is measured.
    ///
    /// # Errors
    /// The server does not start.
    pub fn try_out(&self, spec: &ServerSpec) -> Result<(), BenchError> {
        self.start(spec).map(drop)
    }

    fn start(&self, spec: &ServerSpec) -> Result<Server, BenchError> {
        let ready_within = match spec {
            ServerSpec::Command { .. } => READY_WITHIN,
            // This server should be running already, but its machine may be far away.
            ServerSpec::Running { .. } => Duration::from_secs(1),
        };
        let mut server = Server::start(spec, self.server_cpus.as_deref(), ready_within)?;
        if let Some(pid) = self.pid {
            server.attach(pid);
        }
        Ok(server)
    }

    fn slow_clients_failed(&self, spec: &ServerSpec, error: io::Error) -> BenchError {
        if self.is_interrupted() {
            return BenchError::Load {
                server: spec.name().to_owned(),
                error: LoadError::Interrupted,
            };
        }
        kernel("cannot open the slow clients' connections")(error)
    }

    fn try_block(
        &mut self,
        spec: &ServerSpec,
        load: &Load,
        companion: &mut (dyn Companion + Send),
    ) -> Result<Block, BenchError> {
        let server = self.start(spec)?;
        companion
            .server_started(&server)
            .map_err(|error| BenchError::Companion { server: spec.name().to_owned(), error })?;
        let plan = load.plan.clone().target(server.addr().parse::<Target>()?);
        let slow_clients = match load.slow_clients {
            0 => None,
            count => Some(
                SlowClients::start(count, &plan.target, &plan.requests, self.interrupted)
                    .map_err(|error| self.slow_clients_failed(spec, error))?,
            ),
        };
        // Their descendants count as ours, too, also those that start or end later. One that ends
        // must not be named here: then nobody knows what it used.
        let ours: Vec<u32> = server.pids().first().copied().into_iter().collect();
        let ours = [ours, companion.pids(), vec![std::process::id()]].concat();
        let mut watch =
            BlockWatch::new(&server, companion, plan.warm_up, self.interrupted, &mut self.progress);
        let machine = Baseline::take(&ours, &self.machine_cpus).ok();
        let pinned = self.cpu;
        // The block runs on a thread of its own, so that nothing that is started later inherits the
        // pin.
        let outcome = thread::scope(|scope| {
            let run = || {
                if let Some(cpu) = pinned {
                    affinity::pin_current_thread(&[cpu]).map_err(LoadError::Kernel)?;
                }
                plan.run_watched(&mut watch)
            };
            thread::Builder::new()
                .name("generator".to_owned())
                .spawn_scoped(scope, run)
                .map_err(LoadError::Kernel)
                .and_then(|thread| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
        });
        let cpu = watch.cpu();
        // Others are observed over the whole block, not only over the measured time, because
        // reading `/proc` takes milliseconds, which would show in the figures.
        let outside = machine.and_then(|before| before.outside().ok()).unwrap_or_default();
        drop(slow_clients);
        let measurement =
            outcome.map_err(|error| BenchError::Load { server: spec.name().to_owned(), error })?;
        Ok(Block {
            measurement,
            cpu: cpu.known(),
            processes_changed: matches!(cpu, MeasuredCpu::ProcessesChanged),
            steal: outside.steal,
            outside: outside.total(),
            repeated: 0,
            spoilt: outside.exceeds(self.limits.share),
        })
    }
}
