//! With `--workers` a process becomes a master, and forks the workers.

use std::process::ExitCode;

use wakeful_workers::{Master, Role, Worker};

use super::activity::ActivityArguments;
use super::common::CommonArguments;
use crate::logging;

/// With `--workers` this process becomes a master, and returns in each worker, and at its own end.
///
/// # Errors
/// A line for the user.
pub(super) fn divide(common: &CommonArguments) -> Result<Divided, String> {
    let arguments = common.workers();
    if !arguments.are_given() {
        return Ok(Divided::Whole);
    }
    let options = common.options(&ActivityArguments::default())?;
    let master = Master::new(options.group()).listen(common.addresses()?).passed(common.passed()?);
    let role = arguments.set(master).run().map_err(|error| format!("cannot serve: {error}"))?;
    match role {
        Role::Worker(worker) => {
            logging::of_worker();
            Ok(Divided::Worker(worker))
        }
        Role::Ended(code) => Ok(Divided::Ended(code)),
    }
}

/// What this process is.
#[derive(Debug)]
pub(super) enum Divided {
    /// The only one.
    Whole,
    Worker(Worker),
    /// A master that is through.
    Ended(ExitCode),
}
