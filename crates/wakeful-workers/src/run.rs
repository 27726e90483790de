//! The one loop of a master: it follows the orders of its crew, and waits.

use std::io;
use std::process::ExitCode;
use std::time::Instant;

use crate::crew::Order;
use crate::exec;
use crate::log::{self, IsMaster};
use crate::running::Running;
use crate::settings::Master;
use crate::successor::{Inheritance, Program};
use crate::sys;
use crate::worker::Worker;

/// The role of this process after [`Master::run`].
#[derive(Debug)]
pub enum Role {
    /// This process is a worker, and should serve.
    Worker(Worker),
    /// This process is the master, and no worker is left. Exit with this code. It says failure if
    /// no worker could serve, or if the workers had to end at once.
    Ended(ExitCode),
}

impl Master {
    /// Starts the workers and supervises them. It returns [`Role::Ended`] in this process when the
    /// master has ended, and [`Role::Worker`] in each worker when the worker starts.
    ///
    /// The memory of a worker is a copy of this process's memory at this point, unless workers are
    /// [executed](crate::StartMethod::Exec). The master's own descriptors are closed in the worker.
    ///
    /// # Errors
    /// In the master: the process has several threads; an address cannot be bound; no descriptors
    /// are left; one of the first workers cannot be forked; or the pid file cannot be written. When
    /// `run` returns such an error, all workers have drained.
    ///
    /// In a worker: no descriptors are left; the program cannot be executed; or, in an executed
    /// worker, `run` was called before.
    pub fn run(self) -> io::Result<Role> {
        sys::is_single_threaded()?;
        if let Some(worker) = exec::this_worker()? {
            return Ok(Role::Worker(worker));
        }
        let _is_master = IsMaster::new();
        let program = Program::this();
        let inheritance = Inheritance::take()?;
        let mut running = Running::new(self, program, inheritance)?;
        loop {
            let now = Instant::now();
            while let Some(order) = running.crew.next(now) {
                match order {
                    Order::Start(place) => match running.start(place, now) {
                        Ok(Some(new)) => return running.into_worker(place, new).map(Role::Worker),
                        Ok(None) => {}
                        Err(error) => running.cannot_start(place, now, &error),
                    },
                    Order::Drain(id) => running.drain(id, now),
                }
            }
            if running.is_over() {
                return running.end_of_all().map(Role::Ended);
            }
            running.list_workers();
            running.wait_and_see();
            // Other crates log, too.
            log::end_if_no_master();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As all programs of tests have, of which one waits for the others.
    #[test]
    fn a_process_with_several_threads_is_refused() {
        let master = Master::new(wakeful::LoopGroup::builder());
        let error = master.run().unwrap_err();
        assert!(error.to_string().starts_with("a master must not start a thread"), "{error}");
    }
}
