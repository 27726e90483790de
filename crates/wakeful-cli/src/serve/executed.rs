//! `--exec`: a worker that executes the program again. It begins like any process of this program,
//! and gets from its master what it cannot find out itself.

use std::ffi::OsString;
use std::process::ExitCode;

use wakeful::LoopGroup;
use wakeful_workers::{Master, Role};

use super::handed::Handed;
use super::other_signals::Caught;
use super::start::Start;
use super::{Arguments, divide, of_worker, raise_descriptor_limit, serve};
use crate::{file_size, logging};

/// Runs the worker. `new` has the present options, from the command line and its settings file.
/// `whole` parses a command line that needs no file.
///
/// # Errors
/// A line for the user.
pub(crate) fn run_worker(
    new: Arguments,
    whole: impl FnOnce(Vec<OsString>) -> Result<Arguments, String>,
) -> Result<ExitCode, String> {
    file_size::survive_limits();
    raise_descriptor_limit();
    let role = Master::new(LoopGroup::builder()).run().map_err(|error| error.to_string())?;
    let worker = match role {
        Role::Worker(worker) => worker,
        Role::Ended(code) => return Ok(code),
    };
    logging::of_worker();
    let handed = Handed::of(worker.shared_data()).ok_or("cannot serve: the master sent no data")?;
    let (masters, tickets, pseudonym) = (whole(handed.words)?, handed.tickets, handed.pseudonym);
    divide::take_cpus(masters.common(), &worker);
    let arguments = if masters.common().has_file() { of_worker(&masters, new)? } else { masters };
    let caught = Caught::from_now_on()?;
    let (worker, passed) = (Some(worker), Vec::new());
    let start = Start { caught, worker, passed, tickets, pseudonym };
    serve(&arguments, start)
}
