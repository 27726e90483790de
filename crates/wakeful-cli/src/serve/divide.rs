//! With `--workers` a process becomes a master, and starts the workers.

use std::process::{self, ExitCode};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use wakeful::accept::SharedListener;
use wakeful_workers::{Master, Role, Worker, close_kept, is_successor};

use super::activity::ActivityArguments;
use super::admin::AdminArguments;
use super::common::CommonArguments;
use crate::{logging, stack};

/// How much longer a worker may live than its drain may take.
const MORE_THAN_GRACE: Duration = Duration::from_secs(5);

/// With `--workers` this process becomes a master. This function returns in each forked worker, and
/// at the master's own end. Before workers drain, they report for `pre_drain` that they are not
/// ready. Executed workers get `handed`.
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
        if is_successor() {
            // It would serve beside the master, and keep the master's sockets.
            return Err("cannot take over from a master: the settings name no workers".to_owned());
        }
        // This takes the descriptors by their numbers, so it comes first.
        let passed = common.passed()?;
        close_kept();
        return Ok(Divided::Whole(passed));
    }
    stack::has_room_for_a_master()?;
    let group = common.options(&ActivityArguments::default())?.group();
    // An error is reported before anything listens.
    group.loop_count().map_err(|error| format!("cannot serve: {error}"))?;
    let passed = if is_successor() { Vec::new() } else { common.passed()? };
    let admin = admin.map_or(Ok(Vec::new()), AdminArguments::addresses)?;
    let master = Master::new(group).strategy(common.strategy()?);
    let mut master = master.listen(common.addresses()?).passed(passed).admin(admin);
    if arguments.are_executed() {
        master = master.shared_data(handed());
    }
    // After this time, every worker that can end has ended.
    let limit = common.grace().saturating_add(pre_drain).saturating_add(MORE_THAN_GRACE);
    let this = process::id();
    let role = arguments.set(master.pre_drain(pre_drain).drain_timeout(limit)).run();
    if process::id() != this {
        // From here on the worker has its own log, even if it cannot start, because it cannot use
        // its master's.
        logging::of_worker();
    }
    // The error's text says what cannot be done.
    let role = role.map_err(|error| error.to_string())?;
    match role {
        Role::Worker(worker) => {
            take_cpus(common, &worker);
            Ok(Divided::Worker(worker))
        }
        Role::Ended(code) => Ok(Divided::Ended(code)),
    }
}

/// Restricts a worker to its own CPUs, if loops are to be pinned, according to its master's
/// settings.
pub(super) fn take_cpus(common: &CommonArguments, worker: &Worker) {
    if common.is_pinned() {
        take_share_of_cpus(worker.number(), worker.heartbeats().loops());
    }
}

/// Restricts a worker to its own CPUs, so that the loops of all workers take the CPUs in turn. Its
/// threads are then pinned to CPUs among them.
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

/// The role of this process.
#[derive(Debug)]
pub(super) enum Divided {
    /// The only process of the service, with the sockets that systemd has passed.
    Whole(Vec<SharedListener>),
    /// One of several workers.
    Worker(Worker),
    /// A master that has ended.
    Ended(ExitCode),
}
