//! What a service needs to start, in addition to its options: alone, or as one of several workers.

use wakeful::accept::SharedListener;
use wakeful_services::ServeOptions;
use wakeful_services::proxy::headers::Pseudonym;
use wakeful_services::tls::TicketSecret;
use wakeful_workers::Worker;

use super::admin::AdminArguments;
use super::other_signals::Caught;

#[derive(Debug)]
pub(super) struct Start {
    pub(super) caught: Caught,
    pub(super) worker: Option<Worker>,
    /// The sockets that systemd has passed. A worker has them from its master.
    pub(super) passed: Vec<SharedListener>,
    /// The secret for session tickets, common to all workers.
    pub(super) tickets: Option<TicketSecret>,
    /// The name by which a proxy recognises its own requests, common to all workers.
    pub(super) pseudonym: Pseudonym,
}

impl Start {
    /// Listens on all addresses of the options, beside the passed sockets, or takes the listeners
    /// from the master.
    ///
    /// # Errors
    /// A line for the user.
    pub(super) fn listeners(
        &mut self,
        options: &ServeOptions,
    ) -> Result<Vec<SharedListener>, String> {
        match &mut self.worker {
            Some(worker) => worker.listeners().map_err(|error| error.to_string()),
            None => {
                let mut listeners = options.bind()?;
                listeners.append(&mut self.passed);
                Ok(listeners)
            }
        }
    }

    /// Like [`listeners`](Self::listeners), for operators.
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

    /// Makes a worker's loops report their turns, and wait for connections when it is the worker's
    /// turn.
    pub(super) fn watched(&self, options: ServeOptions) -> ServeOptions {
        let worker = self.worker.as_ref();
        let options = match worker {
            // The number of loops is the one that the master expects. Fewer CPUs may be left to the
            // worker by now.
            Some(worker) => options.loops(worker.heartbeats().loops()),
            None => options,
        };
        options
            .heartbeats(worker.map(Worker::heartbeats))
            .sibling(worker.and_then(Worker::sibling))
            .reports(worker.map(Worker::reports))
    }
}
