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

use crate::reports::Reports;

/// A worker drains after its first signal, whatever else it gets: a terminal, or a service manager,
/// signals all processes, and the master signals its workers as well, at some other time. Only the
/// master ends a worker at once, by SIGKILL.
const ONE_SIGNAL: Duration = Duration::MAX;

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
/// The master sends SIGTERM to make it drain, and SIGHUP, once it is [`ready`](Self::ready), to
/// make it reopen its logs. Until your program handles SIGTERM, that signal ends the worker as it
/// ends any process. SIGHUP, SIGUSR1 and SIGUSR2 do not end it, from its start on: who signals all
/// processes of a service means its master. Your own handlers are called.
#[derive(Debug)]
pub struct Worker {
    pub(crate) number: usize,
    pub(crate) listeners: Vec<OwnedFd>,
    pub(crate) admin_listeners: Vec<OwnedFd>,
    pub(crate) reports: Reports,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) sibling: Option<Sibling>,
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

    /// Returns the sockets on which operators ask, in the order in which they were given to the
    /// master. Any worker may be asked: answer for all, by [`reports`](Self::reports). Empty from
    /// the second call on.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn admin_listeners(&mut self) -> io::Result<Vec<SharedListener>> {
        self.admin_listeners.drain(..).map(SharedListener::from_socket).collect()
    }

    /// Returns what this worker needs to answer for all workers.
    #[must_use]
    pub fn reports(&self) -> Reports {
        self.reports.clone()
    }

    /// For [`LoopGroupBuilder::heartbeats`](wakeful::LoopGroupBuilder::heartbeats) of the group
    /// that was given to the master: only loops with heartbeats are watched.
    #[must_use]
    pub fn heartbeats(&self) -> Heartbeats {
        self.heartbeats.clone()
    }

    /// Returns this worker's place for
    /// [`LoopGroupBuilder::sibling`](wakeful::LoopGroupBuilder::sibling) of the same group. With it
    /// a connection wakes a worker only if no active worker is awake, and light load stays on few
    /// workers. `None`: there are more workers than places.
    #[must_use]
    pub fn sibling(&self) -> Option<Sibling> {
        self.sibling.clone()
    }

    /// Serves until the master tells this worker to end, or is gone. It is like
    /// [`run_until_terminated_or_failed`](wakeful::signal::run_until_terminated_or_failed), except
    /// that a second signal does not end it: only the master does that. When `start` has returned,
    /// the master is told that this worker accepts.
    ///
    /// # Errors
    /// The same as for that function. With [`Orphans::Drain`], also when the worker has drained
    /// because its master was gone.
    ///
    /// # Panics
    /// If one of the closures panics.
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

    /// Tells the master that this worker accepts. The worker that it replaces then drains. Only for
    /// programs that do not call [`serve`](Self::serve). Call it after the server has started and
    /// SIGTERM is handled.
    ///
    /// If a worker ends before this call, its start has failed: the worker that it was to replace
    /// stays.
    pub fn ready(&mut self) {
        if let Some(ready) = self.ready.take() {
            // A master that is gone is noticed by `orphaned`.
            let _ = rustix::io::write(&ready, &[1]);
        }
    }

    /// Completes when this worker has to end because its master is gone. With [`Orphans::GoOn`] it
    /// never completes. [`serve`](Self::serve) waits for it.
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
