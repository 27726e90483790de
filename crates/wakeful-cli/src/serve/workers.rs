//! `--workers` and its options: the service as processes.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use wakeful_workers::{Master, Orphans, StartMethod};

use super::given::given;
use super::seconds::one_second_or_more;
use super::writable::can_be_replaced;

/// The ids of the options, for a service that has no workers.
pub(super) const OPTIONS: [&str; 6] =
    ["workers", "pid_file", "worker_timeout", "worker_start_timeout", "orphan", "exec"];

/// That of `--worker-start-timeout`.
const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
#[command(next_help_heading = "Processes")]
pub(super) struct WorkerArguments {
    /// Run N worker processes below a master, which replaces those that die or hang. The workers
    /// divide the CPUs between them. auto: one worker for each CPU
    #[arg(long, value_name = "N|auto", value_parser = workers)]
    workers: Option<Workers>,

    /// Write the process id of the master in charge to this file, also after an upgrade
    #[arg(long, value_name = "FILE", requires = "workers")]
    pid_file: Option<PathBuf>,

    /// Kill and replace a worker if one turn of a loop takes this many seconds, 1 or more: the loop
    /// then looks for no new events, for example because a task blocks it [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = one_second_or_more, requires = "workers")]
    worker_timeout: Option<Duration>,

    /// Kill a new worker that does not accept within this many seconds, 1 or more; the old ones
    /// stay. In an upgrade the new master has 5 seconds more [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = one_second_or_more, requires = "workers")]
    worker_start_timeout: Option<Duration>,

    /// What workers do if the master is gone [default: drain]
    #[arg(long, value_enum, value_name = "WHAT", requires = "workers")]
    orphan: Option<Orphan>,

    /// Execute the program again in each new worker, instead of only forking the master: every
    /// worker then has an address space layout of its own, and none of the master's memory. A start
    /// takes some milliseconds longer
    #[arg(long, requires = "workers")]
    exec: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workers {
    ForEachCpu,
    Number(NonZeroUsize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Orphan {
    /// Drain, then end.
    Drain,
    /// Continue to serve, until each gets a signal.
    GoOn,
}

impl WorkerArguments {
    pub(super) fn are_given(&self) -> bool {
        self.workers.is_some()
    }

    pub(super) fn are_executed(&self) -> bool {
        self.exec
    }

    /// How many worker processes there should be. `None`: this process itself serves.
    pub(super) fn count(&self) -> Option<usize> {
        self.workers.map(|workers| match workers {
            Workers::ForEachCpu => cpus(),
            Workers::Number(number) => number.get(),
        })
    }

    /// How long a worker may take until it accepts. `None`: this process itself serves.
    pub(super) fn start_timeout(&self) -> Option<Duration> {
        self.workers.map(|_| self.worker_start_timeout.unwrap_or(DEFAULT_START_TIMEOUT))
    }

    /// Applies the options to the master.
    pub(super) fn set(&self, master: Master) -> Master {
        let master = master.workers(self.count().unwrap_or(1)).pid_file(self.pid_file.clone());
        let master = given(master, self.worker_timeout, Master::timeout);
        let master = given(master, self.start_timeout(), Master::start_timeout);
        let master = master.start_method(match self.exec {
            true => StartMethod::Exec,
            false => StartMethod::Fork,
        });
        master.orphans(match self.orphan {
            Some(Orphan::GoOn) => Orphans::GoOn,
            Some(Orphan::Drain) | None => Orphans::Drain,
        })
    }

    /// Checks that the pid file can be written. The file does not change, because a running server
    /// may use it.
    ///
    /// # Errors
    /// A line for the user.
    pub(super) fn try_out(&self) -> Result<(), String> {
        let Some(path) = &self.pid_file else { return Ok(()) };
        can_be_replaced(path)
            .map_err(|error| format!("cannot write the pid file {}: {error}", path.display()))
    }

    /// Like [`CommonArguments::keep`](super::common::CommonArguments::keep).
    pub(super) fn keep(&mut self, masters: &Self) -> Vec<&'static str> {
        let kept = [
            keep(&mut self.workers, &masters.workers, "--workers"),
            keep(&mut self.pid_file, &masters.pid_file, "--pid-file"),
            keep(&mut self.worker_timeout, &masters.worker_timeout, "--worker-timeout"),
            keep(
                &mut self.worker_start_timeout,
                &masters.worker_start_timeout,
                "--worker-start-timeout",
            ),
            keep(&mut self.orphan, &masters.orphan, "--orphan"),
            keep(&mut self.exec, &masters.exec, "--exec"),
        ];
        kept.into_iter().flatten().collect()
    }

    /// How many loops a worker has without `--loops`: its share of the CPUs.
    pub(super) fn loops(&self) -> Option<usize> {
        self.count().map(|workers| (cpus() / workers).max(1))
    }
}

/// Takes the master's value. Returns the option's name if the new value was another one.
pub(super) fn keep<T: Clone + PartialEq>(
    new: &mut T,
    masters: &T,
    option: &'static str,
) -> Option<&'static str> {
    let is_other = new != masters;
    new.clone_from(masters);
    is_other.then_some(option)
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn workers(text: &str) -> Result<Workers, String> {
    if text == "auto" {
        return Ok(Workers::ForEachCpu);
    }
    let number = text.parse::<NonZeroUsize>().ok().filter(|number| number.get() <= 4096);
    number
        .map(Workers::Number)
        .ok_or_else(|| "expected a number from 1 to 4096, or auto".to_owned())
}
