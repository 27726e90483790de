//! What a master is told to do, and its one loop: it follows the orders of its crew, and waits.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use wakeful::LoopGroupBuilder;
use wakeful::accept::SharedListener;
use wakeful::net::ListenAddr;

use crate::crew::Order;
use crate::running::Running;
use crate::successor::{Inheritance, Program};
use crate::sys;
use crate::worker::{Orphans, Worker};

/// More make no sense, and would be a mistake in a number.
pub(crate) const MOST_WORKERS: usize = 4096;

/// What a master is to do: see the [crate](crate).
///
/// | setting | default | range |
/// |---|---|---|
/// | [`listen`](Self::listen), [`passed`](Self::passed) | nowhere | |
/// | [`workers`](Self::workers) | 1 | 1 to 4,096; a number beyond is taken for the nearest |
/// | [`timeout`](Self::timeout) | 30 s | 1 s and more; less is taken for 1 s |
/// | [`orphans`](Self::orphans) | [`Orphans::Drain`] | [`Orphans`] |
/// | [`pid_file`](Self::pid_file) | none | |
#[derive(Debug)]
#[must_use = "nothing happens until it runs"]
pub struct Master {
    pub(crate) group: LoopGroupBuilder,
    pub(crate) listen: Vec<ListenAddr>,
    pub(crate) passed: Vec<SharedListener>,
    pub(crate) workers: usize,
    pub(crate) timeout: Duration,
    pub(crate) orphans: Orphans,
    pub(crate) pid_file: Option<PathBuf>,
}

/// What this process has become.
#[derive(Debug)]
pub enum Role {
    /// A worker, which is to serve.
    Worker(Worker),
    /// A master that is through: no worker is left. It is what the process ends with: a failure if
    /// no worker could serve, or if they were ended at once.
    Ended(ExitCode),
}

impl Master {
    /// Each worker runs a group of loops like this one.
    pub fn new(group: LoopGroupBuilder) -> Self {
        Self {
            group,
            listen: Vec::new(),
            passed: Vec::new(),
            workers: 1,
            timeout: Duration::from_secs(30),
            orphans: Orphans::default(),
            pid_file: None,
        }
    }

    /// Sets where to listen. After an upgrade the sockets of the master before are used again.
    pub fn listen(mut self, addrs: impl IntoIterator<Item = ListenAddr>) -> Self {
        self.listen = addrs.into_iter().collect();
        self
    }

    /// Sets sockets that a service manager has passed to this process. After an upgrade they come
    /// from the master before.
    pub fn passed(mut self, sockets: impl IntoIterator<Item = SharedListener>) -> Self {
        self.passed = sockets.into_iter().collect();
        self
    }

    /// Sets how many workers there are.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, MOST_WORKERS);
        self
    }

    /// Sets for how long a loop may be in one turn before its worker is killed. A loop that sleeps
    /// is in none.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_secs(1));
        self
    }

    /// Sets what workers do when the master is gone.
    pub fn orphans(mut self, orphans: Orphans) -> Self {
        self.orphans = orphans;
        self
    }

    /// Sets a file that names the process of the master in charge. It is written when the first
    /// workers accept, and so changes in an upgrade when the new master takes over.
    pub fn pid_file(mut self, path: impl Into<Option<PathBuf>>) -> Self {
        self.pid_file = path.into();
        self
    }

    /// Forks the workers and looks after them. In this process it returns when it has ended, and in
    /// each worker at its start.
    ///
    /// The memory of a worker is a copy of what the process had here. What the master itself needs
    /// is closed in it.
    ///
    /// # Errors
    /// The process has several threads; an address cannot be had; no descriptors left; the pid file
    /// cannot be written. In a worker: no descriptors left.
    pub fn run(self) -> io::Result<Role> {
        sys::is_single_threaded()?;
        let program = Program::this()?;
        let inheritance = Inheritance::take()?;
        let mut running = Running::new(self, program, inheritance)?;
        loop {
            let now = Instant::now();
            while let Some(order) = running.crew.next(now) {
                match order {
                    Order::Start(place) => match running.start(place, now) {
                        Ok(Some(new)) => return running.into_worker(place, new).map(Role::Worker),
                        Ok(None) => {}
                        Err(error) => {
                            tracing::error!(%error, "cannot start a worker; it is tried again");
                            running.crew.cannot_start(place, now);
                        }
                    },
                    Order::Drain(id) => running.signal(id, Signal::TERM),
                }
            }
            if running.crew.is_over() {
                return Ok(Role::Ended(running.code()));
            }
            running.wait_and_see()?;
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
