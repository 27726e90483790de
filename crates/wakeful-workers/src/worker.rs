//! What a worker has from its master.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use wakeful::accept::{SharedListener, Sibling};
use wakeful::heartbeat::Heartbeats;
use wakeful::readiness::AsyncFd;
use wakeful::signal::run_until_terminated_in;

use crate::signals;

/// A terminal, or timeout(1), signals the worker and the master, which then tells the worker as
/// well, a little later. Only what comes after so much time is a second signal.
const ONE_SIGNAL: Duration = Duration::from_secs(1);

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
/// A master sends it SIGTERM to have it drain, and SIGHUP, once it is [`ready`](Self::ready), to
/// have it open its logs anew. Until your program handles SIGTERM it ends the worker, as it ends
/// any process.
#[derive(Debug)]
pub struct Worker {
    pub(crate) number: usize,
    pub(crate) listeners: Vec<OwnedFd>,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) sibling: Option<Sibling>,
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

    /// For [`LoopGroupBuilder::sibling`](wakeful::LoopGroupBuilder::sibling) of the same group: a
    /// connection then wakes a worker only if none is awake, and light load stays with few workers.
    /// `None`: the master has more workers than can share their turns.
    #[must_use]
    pub fn sibling(&self) -> Option<Sibling> {
        self.sibling.clone()
    }

    /// Serves until the master has this worker end, or is gone: as
    /// [`run_until_terminated_or_failed`](wakeful::signal::run_until_terminated_or_failed), but that
    /// signals within a second are one. Tells the master that it accepts when `start` has returned.
    ///
    /// # Errors
    /// As for that function. With [`Orphans::Drain`] also when the worker has drained because its
    /// master was gone.
    ///
    /// # Panics
    /// When one of the closures does.
    pub fn serve<S, R, F>(
        mut self,
        start: impl FnOnce() -> io::Result<S>,
        failure: impl FnOnce(&S) -> F,
        drain: impl FnOnce(S) -> R + Send + 'static,
    ) -> io::Result<Option<R>>
    where
        S: Send + 'static,
        R: Send + 'static,
        F: Future<Output = io::Error>,
    {
        let orphaned = Cell::new(None);
        run_until_terminated_in(
            ONE_SIGNAL,
            || {
                let server = start()?;
                orphaned.set(Some(self.orphaned()?));
                self.ready();
                Ok(server)
            },
            |server| {
                let failure = failure(server);
                let orphaned = orphaned.take();
                async move {
                    let orphaned = async {
                        match orphaned {
                            Some(orphaned) => orphaned.await,
                            None => pending().await,
                        }
                        io::Error::other("the master is gone")
                    };
                    first(failure, orphaned).await
                }
            },
            drain,
        )
    }

    /// Tells the master that this worker accepts: the worker that it replaces drains then. For
    /// programs that do not [`serve`](Self::serve) by this crate. Call it once the server has
    /// started, and SIGTERM is handled. From now on SIGHUP does not end this process; a handler of
    /// your own is called as before.
    ///
    /// A worker that ends before has failed: if it was to replace another one, that one stays.
    pub fn ready(&mut self) {
        if let Some(ready) = self.ready.take() {
            if let Err(error) = signals::survive_hangup() {
                tracing::warn!(%error, "a HUP would end this worker");
            }
            // A master that is gone is noticed by `orphaned`.
            let _ = rustix::io::write(&ready, &[1]);
        }
    }

    /// Completes when this worker has to end because its master is gone; never with
    /// [`Orphans::GoOn`]. [`serve`](Self::serve) waits for it.
    ///
    /// # Errors
    /// No loop runs on this thread; no descriptors left.
    pub fn orphaned(&self) -> io::Result<impl Future<Output = ()> + use<>> {
        let (lifeline, orphans) = (self.lifeline.try_clone()?, self.orphans);
        let lifeline = AsyncFd::new(lifeline)?;
        Ok(async move {
            // Nobody writes to it: readable is its end. (An error is that of a loop that ends.)
            if lifeline.readable().await.is_err() || orphans == Orphans::GoOn {
                pending::<()>().await;
            }
        })
    }
}

/// What the first of both returns.
async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Pending => other.as_mut().poll(cx),
        ready => ready,
    })
    .await
}
