//! What a worker has from its master.

use std::io;
use std::os::fd::OwnedFd;

use wakeful::accept::SharedListener;
use wakeful::heartbeat::Heartbeats;
use wakeful::readiness::AsyncFd;

use crate::signals;

/// What happens to workers when their master is gone (killed, or ended by a mistake).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Orphans {
    /// They drain and end, because no master would replace them. A new master can then use the
    /// addresses.
    #[default]
    Drain,
    /// They go on, until somebody ends each of them.
    GoOn,
}

/// A forked process that serves clients: see [`Master::run`](crate::Master::run).
///
/// SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPWR and SIGXCPU are blocked in it until it is
/// [`ready`](Self::ready), so that earlier signals are not lost.
#[derive(Debug)]
pub struct Worker {
    pub(crate) number: usize,
    pub(crate) listeners: Vec<OwnedFd>,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) ready: Option<OwnedFd>,
    /// At its end when the master is gone.
    pub(crate) lifeline: OwnedFd,
    pub(crate) orphans: Orphans,
}

impl Worker {
    /// Returns the index of the worker: from 0 to the number of workers minus one. Its replacement
    /// gets the same index.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the master's sockets, in the order in which they were given to the master. Empty
    /// from the second call on.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn listeners(&mut self) -> io::Result<Vec<SharedListener>> {
        self.listeners.drain(..).map(SharedListener::from_socket).collect()
    }

    /// For [`LoopGroupBuilder::heartbeats`](wakeful::LoopGroupBuilder::heartbeats) of the group
    /// that was given to the master: only loops with heartbeats are watched.
    #[must_use]
    pub fn heartbeats(&self) -> Heartbeats {
        self.heartbeats.clone()
    }

    /// Tells the master that this worker accepts, and lets signals come to this thread. Call it
    /// after the server has started and signal handlers are installed. The worker that it replaces
    /// then drains.
    ///
    /// If a worker ends before this call, its start has failed: the worker that it was to replace
    /// stays.
    pub fn ready(&mut self) {
        if let Some(ready) = self.ready.take() {
            // A master that is gone is noticed by `orphaned`.
            let _ = rustix::io::write(&ready, &[1]);
            signals::let_through_in_worker();
        }
    }

    /// Completes when this worker has to end because its master is gone. With [`Orphans::GoOn`] it
    /// never completes.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors left.
    pub fn orphaned(&self) -> io::Result<impl Future<Output = ()> + use<>> {
        let (lifeline, orphans) = (self.lifeline.try_clone()?, self.orphans);
        let lifeline = AsyncFd::new(lifeline)?;
        Ok(async move {
            // Nobody writes to it: readable is its end. (An error is that of a loop that ends.)
            if lifeline.readable().await.is_err() || orphans == Orphans::GoOn {
                std::future::pending::<()>().await;
            }
        })
    }
}
