//! What a service starts with, beside its options: alone, or as one of several workers.

use wakeful::accept::SharedListener;
use wakeful_services::ServeOptions;
use wakeful_services::tls::TicketSecret;
use wakeful_workers::Worker;

use super::admin::AdminArguments;
use super::common::CommonArguments;
use super::other_signals::Caught;

#[derive(Debug)]
pub(super) struct Start {
    pub(super) caught: Caught,
    pub(super) worker: Option<Worker>,
    /// What all workers have in common.
    pub(super) tickets: Option<TicketSecret>,
}

impl Start {
    /// Listens everywhere that was asked for, or has that from the master.
    ///
    /// # Errors
    /// A line for the user.
    pub(super) fn listeners(
        &mut self,
        common: &CommonArguments,
        options: &ServeOptions,
    ) -> Result<Vec<SharedListener>, String> {
        match &mut self.worker {
            Some(worker) => worker.listeners().map_err(|error| error.to_string()),
            None => common.bind(options),
        }
    }

    /// As [`listeners`](Self::listeners), for operators.
    ///
    /// # Errors
    /// A line for the user.
    pub(super) fn admin(
        &mut self,
        arguments: &AdminArguments,
    ) -> Result<Vec<SharedListener>, String> {
        match &mut self.worker {
            Some(worker) => worker.admin_listeners().map_err(|error| error.to_string()),
            None => arguments.bind(),
        }
    }

    /// A worker's loops say that they take turns, and wait for connections when it is theirs.
    pub(super) fn watched(&self, options: ServeOptions) -> ServeOptions {
        let worker = self.worker.as_ref();
        let options = match worker {
            // As many loops as its master counts on: fewer CPUs may be left to it by now.
            Some(worker) => options.loops(worker.heartbeats().loops()),
            None => options,
        };
        options
            .heartbeats(worker.map(Worker::heartbeats))
            .sibling(worker.and_then(Worker::sibling))
            .reports(worker.map(Worker::reports))
    }
}
