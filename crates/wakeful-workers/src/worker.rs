//! A worker, with what it has from its master.

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::future::{pending, poll_fn};
use std::io;
use std::iter;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use wakeful::accept::{SharedListener, Sibling};
use wakeful::heartbeat::Heartbeats;
use wakeful::readiness::AsyncFd;
use wakeful::signal::run_until_terminated_in;

use crate::listen_again::has_stopped;
use crate::reports::Reports;
use crate::sys;

/// A worker drains after its first signal, and ignores later ones. A terminal, or a service
/// manager, signals all processes, and the master signals its workers as well, at some other time.
/// Only the master ends a worker at once, by SIGKILL.
const ONE_SIGNAL: Duration = Duration::MAX;

/// The data that a master passes to all of its workers. It may be a secret.
#[derive(Clone, Default)]
pub(crate) struct SharedData(pub(crate) Vec<u8>);

impl fmt::Debug for SharedData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What workers do when their master is gone (killed, or crashed).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Orphans {
    /// They drain and end, because no master would replace them. A new master can then use the
    /// addresses.
    #[default]
    Drain,
    /// They continue to serve until each of them is ended separately, for example by SIGTERM. They
    /// drain all the same if the master was told to end, or if another master is in charge: in an
    /// upgrade this one has not taken over yet, or has been succeeded.
    GoOn,
}

/// The error of [`Worker::serve`] if the worker has drained, or has not started, because its master
/// was gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MasterIsGone;

impl fmt::Display for MasterIsGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the master is gone")
    }
}

impl Error for MasterIsGone {}

/// A process that serves clients: see [`Master::run`](crate::Master::run).
///
/// The master sends SIGTERM to make the worker drain, and SIGHUP, once the worker is
/// [`ready`](Self::ready), to make it reopen its logs. Until your program handles SIGTERM, that
/// signal ends the worker at once, as it ends any process. SIGHUP, SIGUSR1 and SIGUSR2 never end a
/// worker: when they are sent to all processes of a service, they are meant for the master. If your
/// program handles these signals, its handlers are called. For the same reason SIGTTIN and SIGTTOU
/// do not stop a worker. It ignores them, and so do programs that it starts.
#[derive(Debug)]
pub struct Worker {
    pub(crate) number: usize,
    pub(crate) listeners: Vec<OwnedFd>,
    /// How many listeners belong to one address: one for each loop. `None`: the loops share one.
    pub(crate) sockets_each: Option<NonZeroUsize>,
    pub(crate) admin_listeners: Vec<OwnedFd>,
    pub(crate) reports: Reports,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) sibling: Option<Sibling>,
    pub(crate) ready: Option<OwnedFd>,
    /// Reads the end of the file when the master is gone.
    pub(crate) lifeline: OwnedFd,
    pub(crate) orphans: Orphans,
    pub(crate) shared_data: SharedData,
}

impl Worker {
    /// Returns the index of the worker: from 0 to the number of workers minus one. Its replacement
    /// gets the same index.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the master's sockets, in the order in which they were given to the master. A second
    /// call returns none.
    ///
    /// With [`AcceptStrategy::ReusePort`](wakeful::accept::AcceptStrategy::ReusePort) each listener
    /// has a socket for each loop ([`SharedListener::from_sockets`]). The worker's group must then
    /// have as many loops as the group that was given to the master. If that one has a loop for
    /// each CPU, the worker's has as many by its [`heartbeats`](Self::heartbeats).
    ///
    /// One of them may have been shut down (`ss -K`), and the master cannot make it listen again
    /// yet. A server then serves the others ([`SharedListener::from_master`]).
    ///
    /// # Errors
    /// No descriptors are left; or all sockets were shut down.
    pub fn listeners(&mut self) -> io::Result<Vec<SharedListener>> {
        let have_stopped = |sockets: &[OwnedFd]| sockets.iter().all(|one| has_stopped(one.as_fd()));
        if !self.listeners.is_empty() && have_stopped(&self.listeners) {
            return Err(io::Error::other("all sockets were shut down, and cannot listen again"));
        }
        let mut sockets = self.listeners.drain(..);
        let Some(each) = self.sockets_each else {
            let listeners: Vec<_> =
                sockets.map(SharedListener::from_master).collect::<io::Result<_>>()?;
            if self.sibling.is_none() {
                // If this worker is killed when the kernel has woken it, nobody else would look.
                listeners.iter().for_each(SharedListener::wake_every_loop);
            }
            return Ok(listeners);
        };
        let of_one = || Some(sockets.by_ref().take(each.get()).collect::<Vec<_>>());
        let of_each = iter::from_fn(of_one).take_while(|of_one| !of_one.is_empty());
        of_each.map(SharedListener::from_sockets_of_master).collect()
    }

    /// Returns the sockets for operators, in the order in which they were given to the master. An
    /// operator's request may reach any worker, so answer for all workers, with
    /// [`reports`](Self::reports). A second call returns none.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn admin_listeners(&mut self) -> io::Result<Vec<SharedListener>> {
        self.admin_listeners.drain(..).map(SharedListener::from_master).collect()
    }

    /// Returns the [`Reports`] with which this worker answers for all workers.
    #[must_use]
    pub fn reports(&self) -> Reports {
        self.reports.clone()
    }

    /// Returns the master's [`shared_data`](crate::Master::shared_data).
    #[must_use]
    pub fn shared_data(&self) -> &[u8] {
        &self.shared_data.0
    }

    /// Returns the heartbeats of this worker. Pass them to
    /// [`LoopGroupBuilder::heartbeats`](wakeful::LoopGroupBuilder::heartbeats) of the group that
    /// was given to the master. The master watches only loops with heartbeats.
    #[must_use]
    pub fn heartbeats(&self) -> Heartbeats {
        self.heartbeats.clone()
    }

    /// Returns this worker's place among the workers. Pass it to
    /// [`LoopGroupBuilder::sibling`](wakeful::LoopGroupBuilder::sibling) of the group that was
    /// given to the master. A connection then wakes a worker only if no active worker is awake, and
    /// light load stays on few workers. Returns `None` if there are more workers than places, or if
    /// each loop has its own socket.
    #[must_use]
    pub fn sibling(&self) -> Option<Sibling> {
        self.sibling.clone()
    }

    /// Serves until the master tells this worker to end, or is gone. It works like
    /// [`run_until_terminated_or_failed`](wakeful::signal::run_until_terminated_or_failed), with
    /// two differences: when `start` has returned, it tells the master that this worker accepts,
    /// and a second signal does not end it. A start that waits for its set-ups
    /// ([`on_each_loop`](wakeful::accept::ConnectionServer::on_each_loop)) also ends if the master
    /// is gone.
    ///
    /// # Errors
    /// The same as for
    /// [`run_until_terminated_or_failed`](wakeful::signal::run_until_terminated_or_failed). With
    /// [`Orphans::Drain`] it is also an error if the worker has drained, or has not started,
    /// because its master was gone: the [`io::Error`] contains [`MasterIsGone`]. So it is with
    /// [`Orphans::GoOn`] if the master had begun to end, or another one was in charge.
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
        let is_orphaned = Arc::new(AtomicBool::new(false));
        let orphans_start = {
            let is_orphaned = is_orphaned.clone();
            let (lifeline, orphans) = (Arc::new(sys::duplicate(&self.lifeline)?), self.orphans);
            let reports = self.reports();
            move || {
                let orphaned = until_orphaned(lifeline.clone(), orphans, reports.clone());
                let is_orphaned = is_orphaned.clone();
                async move {
                    match orphaned {
                        Ok(orphaned) => orphaned.await,
                        Err(_) => pending().await,
                    }
                    is_orphaned.store(true, Ordering::Release);
                }
            }
        };
        let orphaned = Cell::new(None);
        let drained = run_until_terminated_in(
            ONE_SIGNAL,
            orphans_start,
            || {
                // Before the start: if no descriptor is left, no server is dropped that serves.
                orphaned.set(Some(self.orphaned()?));
                let server = start()?;
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
                        io::Error::other(MasterIsGone)
                    };
                    first(failure, orphaned).await
                }
            },
            drain,
        );
        match drained {
            Ok(None) if is_orphaned.load(Ordering::Acquire) => Err(io::Error::other(MasterIsGone)),
            drained => drained,
        }
    }

    /// Tells the master that this worker accepts. The worker that it replaces then drains. This is
    /// only for programs that do not call [`serve`](Self::serve). Call it after the server has
    /// started and SIGTERM is handled. If the worker was told to end while it started, SIGTERM
    /// comes once more behind this call.
    ///
    /// If a worker ends before this call, its start has failed, and the old worker stays.
    pub fn ready(&mut self) {
        // A child that the start has forked does not speak for the worker.
        if let Some(ready) = self.ready.take()
            && self.reports.is_own_process()
        {
            // An error means that the master is gone, which `orphaned` notices.
            let _ = rustix::io::write(&ready, &[1]);
        }
    }

    /// Returns a future that completes when this worker must end because its master is gone. With
    /// [`Orphans::GoOn`] the future completes only if the master had begun to end, or another one
    /// was in charge. [`serve`](Self::serve) already waits for it.
    ///
    /// # Errors
    /// No loop runs on this thread; or no descriptors are left.
    pub fn orphaned(&self) -> io::Result<impl Future<Output = ()> + use<>> {
        until_orphaned(sys::duplicate(&self.lifeline)?, self.orphans, self.reports())
    }
}

/// Does what [`Worker::orphaned`] documents.
fn until_orphaned<L: AsFd>(
    lifeline: L,
    orphans: Orphans,
    reports: Reports,
) -> io::Result<impl Future<Output = ()> + use<L>> {
    let lifeline = AsyncFd::new(lifeline)?;
    Ok(async move {
        // Nobody writes to the lifeline. It is readable only when the master's end is closed. (An
        // error means that the loop ends.)
        let has_closed = lifeline.readable().await.is_ok();
        // A master that ends may have kept new clients out already. In an upgrade, the workers of
        // the other master serve.
        let goes_on = || orphans == Orphans::GoOn && !reports.says_that_this_one_need_not_go_on();
        if !has_closed || goes_on() {
            pending::<()>().await;
        }
    })
}

/// The output of the future that is ready first.
async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Pending => other.as_mut().poll(cx),
        ready => ready,
    })
    .await
}

#[cfg(test)]
mod tests {
    use wakeful::time::timeout;

    use super::*;
    use crate::reports::{Desk, WorkerInfo, WorkerState};

    /// The master is killed before it sends the signal, when it has kept new clients out already.
    /// Or it is killed in an upgrade, before it takes over.
    #[test]
    fn an_orphan_that_was_to_drain_or_whose_predecessors_serve_does_not_go_on() {
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(50));
        let (draining, serving) = (WorkerState::Draining, WorkerState::Serving);
        for (state, is_served_elsewhere, limit) in
            [(draining, false, long), (serving, true, long), (serving, false, short)]
        {
            let (lifeline, master) = sys::pipe().unwrap();
            let mut desk = Desk::new(sys::duplicate(&lifeline).unwrap()).unwrap();
            let place = desk.take();
            let (pid, forked) = (std::process::id(), Duration::ZERO);
            let listed = WorkerInfo { number: 0, pid, state, forked, place };
            desk.list(true, is_served_elsewhere, iter::once(listed), |_| Vec::new());
            let reports = desk.reports(place);
            drop(master);
            let drains = wakeful::block_on(async {
                let orphaned = until_orphaned(lifeline, Orphans::GoOn, reports).unwrap();
                timeout(limit, orphaned).await.is_ok()
            });
            assert_eq!(drains, limit == long);
        }
    }

    #[test]
    fn what_may_be_a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", SharedData(b"secret".to_vec())), "6 bytes");
    }
}
