//! What a worker has from its master.

use std::io;
use std::os::fd::OwnedFd;

use wakeful::accept::SharedListener;
use wakeful::heartbeat::Heartbeats;
use wakeful::readiness::AsyncFd;

use crate::signals;

/// What becomes of workers whose master is gone: killed, or ended by a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Orphans {
    /// They drain and end. Nobody would start others in their place, and a new master can have the
    /// addresses.
    #[default]
    Drain,
    /// They go on, until somebody ends each of them.
    GoOn,
}

/// A forked process that is to serve: see [`Master::run`](crate::Master::run).
///
/// SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPWR and SIGXCPU are blocked in it until it is
/// [`ready`](Self::ready), so that none that comes earlier is lost.
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
    /// The number of its place: from 0 to one less than there are workers. The one that replaces it
    /// gets the same.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// The master's sockets, in the order in which they were given to it. Empty from the second
    /// call on.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn listeners(&mut self) -> io::Result<Vec<SharedListener>> {
        self.listeners.drain(..).map(SharedListener::from_socket).collect()
    }

    /// For [`LoopGroupBuilder::heartbeats`](wakeful::LoopGroupBuilder::heartbeats) of the group
    /// that the master was told of: only loops that have them are watched.
    #[must_use]
    pub fn heartbeats(&self) -> Heartbeats {
        self.heartbeats.clone()
    }

    /// Tells the master that this worker accepts, and lets signals come to this thread. Call it
    /// once the server has started, and handlers of signals are there. The worker that it replaces
    /// drains then.
    ///
    /// A worker that ends before has failed: if it was to replace another one, that one stays.
    pub fn ready(&mut self) {
        if let Some(ready) = self.ready.take() {
            // A master that is gone is noticed by `orphaned`.
            let _ = rustix::io::write(&ready, &[1]);
            signals::let_through_in_worker();
        }
    }

    /// Completes when this worker has to end because its master is gone; never with
    /// [`Orphans::GoOn`].
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
