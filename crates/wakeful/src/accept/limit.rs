//! How many connections are open at a time, on all loops together.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use async_lock::futures::AcquireArc;
use async_lock::{Semaphore, SemaphoreGuardArc};

use super::descriptors::{self, Descriptors};
use super::room::{LOOK, Room};
use super::when_full::WhenFull;
use crate::balance::balancer::{Balancer, Full};
use crate::balance::counts::LoopCounts;
use crate::net::Listener;
use crate::net::accepted::Accepted;
use crate::sys::fork_check::Process;
use crate::sys::panics;
use crate::task::coop;
use crate::time::{Deadline, now, timeout};

/// While connections wait, the process's limit of descriptors is read again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A server that keeps connections waiting logs it again after this time.
const LOG_AGAIN: Duration = Duration::from_secs(60);

/// The limit of a server's open connections, if it has one.
#[derive(Debug, Clone)]
pub(super) struct Limit(Option<Permits>);

#[derive(Debug, Clone)]
struct Permits {
    semaphore: Arc<Semaphore>,
    process: Process,
    bound: Arc<Bound>,
    room: Arc<Room>,
}

/// The right to have one connection open.
///
/// A forked child does not give its copy back. That takes a lock which a thread of the parent may
/// have held at the fork.
#[derive(Debug)]
pub(super) struct Permit(Option<(SemaphoreGuardArc, Process)>);

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some((permit, process)) = self.0.take()
            && process.is_forked()
        {
            std::mem::forget(permit);
        }
    }
}

impl Limit {
    /// A limit that the user has set.
    pub(super) fn of(connections: usize, process: Process, room: Arc<Room>) -> Self {
        // With [`WhenFull::Replace`] a new connection is open before the one that it replaces has
        // closed.
        let replaces = usize::from(room.when_full() == WhenFull::Replace);
        let semaphore = Arc::new(Semaphore::new(connections.saturating_add(replaces)));
        let bound = Arc::new(Bound::new(connections, None));
        Self(Some(Permits { semaphore, process, bound, room }))
    }

    /// A limit of as many connections as the process's descriptors allow. It lets nobody in before
    /// [`begin`](Self::begin) is called.
    pub(super) fn by_descriptors(kept: Descriptors, process: Process, room: Arc<Room>) -> Self {
        if Descriptors::limit().is_none() {
            return Self(None);
        }
        let semaphore = Arc::new(Semaphore::new(0));
        let by = ByDescriptors { kept, open: AtomicUsize::new(0) };
        let bound = Arc::new(Bound::new(0, Some(by)));
        Self(Some(Permits { semaphore, process, bound, room }))
    }

    /// Called when the loops have started and no connection is open: what is open now stays open.
    /// The loops will open `later` further descriptors.
    pub(super) fn begin(&self, later: usize) {
        if let Some(permits) = &self.0
            && let Some(by) = &permits.bound.by_descriptors
        {
            by.open.store(descriptors::open().saturating_add(later), Ordering::Relaxed);
            permits.semaphore.add_permits(permits.bound.follow_limit(by));
        }
    }

    /// A permit, if one is left.
    pub(super) fn try_permit(&self) -> Option<Permit> {
        match &self.0 {
            None => Some(Permit(None)),
            Some(permits) => permits.semaphore.try_acquire_arc().map(|permit| permits.of(permit)),
        }
    }

    /// Waits for a permit, and looks for one now and then: the semaphore wakes one waiter at a
    /// time, and the loop of that one may be blocked.
    pub(super) async fn permit(&self) -> Permit {
        match (self.try_permit(), &self.0) {
            (Some(permit), _) => permit,
            (None, None) => unreachable!("without a limit there is always a permit"),
            (None, Some(permits)) => {
                permits.look_again();
                loop {
                    // Its first poll takes a permit that is free.
                    let acquired = timeout(LOOK, permits.semaphore.acquire_arc()).await;
                    if let Ok(permit) = acquired {
                        return permits.of(permit);
                    }
                }
            }
        }
    }

    /// Takes the next connection, with a permit. Without a permit the connection stays in the
    /// backlog, and open connections are asked to make room for it.
    ///
    /// A loop that waits for a connection holds no permit meanwhile. Otherwise loops that only wait
    /// would take the permits of loops that have connections to serve.
    pub(super) async fn accept(
        &self,
        listener: &Listener,
        counts: &LoopCounts,
        balancer: &Arc<Balancer>,
    ) -> io::Result<(Accepted, Permit)> {
        let mut full: Option<Full> = None;
        let mut accept = pin!(listener.accept_detached());
        let mut waits = false;
        let mut wait: Option<Wait> = None;
        poll_fn(|cx| {
            let permit = match (self.try_permit(), &self.0) {
                (Some(permit), _) => permit,
                (None, None) => unreachable!("without a limit there is always a permit"),
                (None, Some(permits)) => {
                    let wait = wait.get_or_insert_with(|| permits.wait());
                    match wait.acquire.as_mut().poll(cx) {
                        Poll::Ready(permit) => permits.of(permit),
                        Poll::Pending => {
                            full = full.take().or_else(|| balancer.full());
                            while Pin::new(&mut wait.look).poll(cx).is_ready() {
                                if !listener.is_empty() {
                                    permits.room.ask();
                                }
                                wait.look.reset(now() + LOOK);
                            }
                            return Poll::Pending;
                        }
                    }
                }
            };
            wait = None;
            full = None;
            match accept.as_mut().poll(cx) {
                Poll::Ready(result) => {
                    if result.is_ok() {
                        self.replace();
                    }
                    Poll::Ready(result.map(|accepted| (accepted, permit)))
                }
                Poll::Pending => {
                    // A task whose budget is spent has not asked the kernel, or has only skipped
                    // connections that are gone. That is no wake in vain.
                    if !coop::is_spent() && std::mem::replace(&mut waits, true) {
                        counts.count_wake_in_vain();
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// A connection came. If it took the last place, and the server replaces connections, another
    /// one is asked to leave.
    fn replace(&self) {
        if let Some(permits) = &self.0
            && permits.room.when_full() == WhenFull::Replace
            && permits.semaphore.try_acquire_arc().is_none()
        {
            permits.bound.log(WhenFull::Replace);
            permits.room.ask();
        }
    }
}

/// A loop's wait for a permit.
struct Wait {
    acquire: Pin<Box<AcquireArc>>,
    /// When the loop next checks whether a connection waits.
    look: Deadline,
}

impl Permits {
    fn wait(&self) -> Wait {
        self.look_again();
        Wait { acquire: Box::pin(self.semaphore.acquire_arc()), look: Deadline::after(LOOK) }
    }

    fn of(&self, permit: SemaphoreGuardArc) -> Permit {
        Permit(Some((permit, self.process)))
    }

    /// Called while no permit is left: adds permits if the process's limit of descriptors has been
    /// raised.
    #[cold]
    fn look_again(&self) {
        let more = self.bound.more();
        if more > 0 {
            self.semaphore.add_permits(more);
        } else {
            self.bound.log(self.room.when_full());
        }
    }
}

/// The parts of a limit that follows from the process's descriptors.
#[derive(Debug)]
struct ByDescriptors {
    kept: Descriptors,
    /// How many descriptors were open when the loops had started, and will be opened by them.
    open: AtomicUsize,
}

/// How many connections there may be, and when the limit was last looked at and logged.
#[derive(Debug)]
struct Bound {
    connections: AtomicUsize,
    /// `None`: the user has set the number.
    by_descriptors: Option<ByDescriptors>,
    epoch: Instant,
    /// In milliseconds since the epoch; 0: never.
    looked: AtomicU64,
    logged: AtomicU64,
}

impl Bound {
    fn new(connections: usize, by_descriptors: Option<ByDescriptors>) -> Self {
        let (looked, logged) = (AtomicU64::new(0), AtomicU64::new(0));
        let connections = AtomicUsize::new(connections);
        Self { connections, by_descriptors, epoch: Instant::now(), looked, logged }
    }

    /// How many more connections the process's limit of descriptors allows than before.
    fn more(&self) -> usize {
        let Some(by) = &self.by_descriptors else { return 0 };
        if self.is_time(&self.looked, LOOK_AGAIN) { self.follow_limit(by) } else { 0 }
    }

    fn follow_limit(&self, by: &ByDescriptors) -> usize {
        let (limit, open) =
            (Descriptors::limit().unwrap_or(usize::MAX), by.open.load(Ordering::Relaxed));
        let connections = by.kept.connections(limit, open).min(isize::MAX as usize);
        connections.saturating_sub(self.connections.fetch_max(connections, Ordering::Relaxed))
    }

    fn log(&self, when_full: WhenFull) {
        if !self.is_time(&self.logged, LOG_AGAIN) {
            return;
        }
        let connections = self.connections.load(Ordering::Relaxed);
        if when_full == WhenFull::Replace {
            panics::log!(
                warn,
                connections,
                "the limit of connections is reached: each new connection closes another one"
            );
        } else if self.by_descriptors.is_some() {
            panics::log!(
                warn,
                connections,
                "out of descriptors for connections: further connections wait. Raise \
                 RLIMIT_NOFILE (ulimit -n)"
            );
        } else {
            panics::log!(
                warn,
                connections,
                "the limit of connections is reached: further ones wait until one closes"
            );
        }
    }

    /// Has the time `every` passed since this function last returned `true` for `last`?
    fn is_time(&self, last: &AtomicU64, every: Duration) -> bool {
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let before = last.load(Ordering::Relaxed);
        let is_time = before == 0 || Duration::from_millis(now.saturating_sub(before)) >= every;
        // If several loops ask at once, only one gets `true`.
        is_time && last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, not(wakeful_loom), not(miri)))] // Miri has no handlers of forks.
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_permit_goes_back_in_its_own_process_alone() {
        let (here, elsewhere) = (Process::current().unwrap(), Process::of_parent());
        for (process, is_back) in [(here, true), (elsewhere, false)] {
            let limit = Limit::of(1, process, Room::new(1, WhenFull::Wait).0);
            let permit = limit.try_permit();
            assert!(permit.is_some() && limit.try_permit().is_none());
            drop(permit);
            assert_eq!(limit.try_permit().is_some(), is_back);
        }
    }

    /// The semaphore wakes the first, as if its loop were blocked.
    #[test]
    fn one_that_waits_and_is_not_polled_keeps_no_permit_from_the_next() {
        let mut event_loop = crate::EventLoop::new().unwrap();
        let process = Process::current().unwrap();
        let limit = Rc::new(Limit::of(1, process, Room::new(1, WhenFull::Wait).0));
        let permit = limit.try_permit();
        let next = async {
            let mut first = Box::pin(limit.permit());
            let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
            assert!(first.as_mut().poll(cx).is_pending());
            let limit = limit.clone();
            let second = crate::spawn(async move { limit.permit().await });
            crate::task::yield_now().await;
            drop(permit);
            timeout(Duration::from_secs(20), second).await.is_ok()
        };
        assert!(event_loop.block_on(next).unwrap());
    }
}
