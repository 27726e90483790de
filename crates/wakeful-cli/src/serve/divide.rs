//! With `--workers` a process becomes a master, and starts the workers.

use std::process::{self, ExitCode};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use wakeful_workers::{Master, Role, Worker, is_successor};

use super::activity::ActivityArguments;
use super::admin::AdminArguments;
use super::common::CommonArguments;
use crate::{logging, stack};

/// So much longer than its drain may take, a worker may live.
const MORE_THAN_GRACE: Duration = Duration::from_secs(5);

/// With `--workers` this process becomes a master, and returns in each worker that is only forked,
/// and at its own end. Workers say for `pre_drain` that they are not ready, before they drain. What
/// is `handed` reaches those that are executed.
///
/// # Errors
/// A line for the user.
pub(super) fn divide(
    common: &CommonArguments,
    admin: Option<&AdminArguments>,
    pre_drain: Duration,
    handed: impl FnOnce() -> Vec<u8>,
) -> Result<Divided, String> {
    let arguments = common.workers();
    if !arguments.are_given() {
        return Ok(Divided::Whole);
    }
    stack::has_room_for_a_master()?;
    let group = common.options(&ActivityArguments::default())?.group();
    // Told before anything listens.
    group.loop_count().map_err(|error| format!("cannot serve: {error}"))?;
    let passed = if is_successor() { Vec::new() } else { common.passed()? };
    let admin = admin.map_or(Ok(Vec::new()), AdminArguments::addresses)?;
    let master = Master::new(group).strategy(common.strategy()?);
    let mut master = master.listen(common.addresses()?).passed(passed).admin(admin);
    if arguments.are_executed() {
        master = master.shared_data(handed());
    }
    // Those that can end have ended by then.
    let limit = common.grace().saturating_add(pre_drain).saturating_add(MORE_THAN_GRACE);
    let this = process::id();
    let role = arguments.set(master.pre_drain(pre_drain).drain_timeout(limit)).run();
    if process::id() != this {
        // Also what a worker says that cannot begin: it cannot use its master's.
        logging::of_worker();
    }
    // The text says what cannot be done.
    let role = role.map_err(|error| error.to_string())?;
    match role {
        Role::Worker(worker) => {
            take_cpus(common, &worker);
            Ok(Divided::Worker(worker))
        }
        Role::Ended(code) => Ok(Divided::Ended(code)),
    }
}

/// Leaves a worker those CPUs that are its own, if loops are to be pinned: by the settings of its
/// master.
pub(super) fn take_cpus(common: &CommonArguments, worker: &Worker) {
    if common.is_pinned() {
        take_share_of_cpus(worker.number(), worker.heartbeats().loops());
    }
}

/// Leaves a worker those CPUs that are its own if each loop of all workers has one, in turn. Its
/// threads are pinned to CPUs among them then.
fn take_share_of_cpus(number: usize, loops: usize) {
    let pinned = sched_getaffinity(None).and_then(|allowed| {
        let cpus: Vec<_> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        let mut share = CpuSet::new();
        let own = (number * loops..(number + 1) * loops).map(|place| cpus[place % cpus.len()]);
        own.for_each(|cpu| share.set(cpu));
        sched_setaffinity(None, &share)
    });
    if let Err(error) = pinned {
        tracing::warn!(%error, "cannot give this worker its own CPUs (sched_setaffinity): --pin chooses among the CPUs of all workers");
    }
}

/// What this process is.
#[derive(Debug)]
pub(super) enum Divided {
    /// The only one.
    Whole,
    /// One of several.
    Worker(Worker),
    /// A master that is through.
    Ended(ExitCode),
}
