//! The backends: which one a request gets, and what it turned out to be like.
//!
//! Each loop has connections of its own to each backend, counts what it has in flight there, and
//! chooses by that alone: of two backends at random the one with less. Only what is known against a
//! backend is shared by all loops, behind a lock that nobody takes to choose unless a backend is
//! out, or for an answer unless it is of one that has failed.

use std::cell::Cell;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use wakeful_http::client::{Client, Host, Target};

use super::counts::{BackendCounts, LoopCounts};
use super::health::{Ejection, Health, News, Standing, Verdict};
use super::request_body::BufferedRequest;
use super::tunnel::Place;
use crate::log;

/// What all loops know.
#[derive(Debug)]
pub(super) struct Shared {
    /// One is left out.
    is_one_out: AtomicBool,
    /// Of each: it failed, and has not answered since.
    has_failed: Box<[AtomicBool]>,
    health: Mutex<Health>,
}

impl Shared {
    pub(super) fn new(backends: usize, ejection: Ejection) -> Arc<Self> {
        let health = Mutex::new(Health::new(backends, ejection));
        let has_failed = (0..backends).map(|_| AtomicBool::new(false)).collect();
        Arc::new(Self { is_one_out: AtomicBool::new(false), has_failed, health })
    }

    fn lock(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Under the lock.
    fn note(&self, health: &Health, backend: usize) {
        self.is_one_out.store(health.is_one_out(), Ordering::Relaxed);
        self.has_failed[backend].store(health.has_failed(backend), Ordering::Relaxed);
    }
}

/// What one loop has.
pub(super) struct Backends {
    shared: Arc<Shared>,
    hosts: Box<[Host<BufferedRequest>]>,
    in_flight: Box<[Cell<usize>]>,
    counts: Arc<LoopCounts>,
}

impl Backends {
    pub(super) fn new(
        shared: Arc<Shared>,
        client: &Client<BufferedRequest>,
        targets: &[Target],
        counts: Arc<LoopCounts>,
    ) -> Rc<Self> {
        let hosts = targets.iter().map(|target| client.host(target)).collect();
        let in_flight = targets.iter().map(|_| Cell::new(0)).collect();
        Rc::new(Self { shared, hosts, in_flight, counts })
    }

    /// A backend for a request that `tried` the others in vain; `None`: there is no other.
    pub(super) fn choose(self: &Rc<Self>, tried: &[usize]) -> Option<Exchange> {
        let all = self.hosts.len();
        if tried.is_empty() && !self.shared.is_one_out.load(Ordering::Relaxed) {
            return Some(self.exchange(self.less_busy(all, |at| at), Standing::In));
        }
        let mut health = self.shared.lock();
        let now = Instant::now();
        let untried = (0..all).filter(|at| !tried.contains(at));
        let mut of_use = Vec::with_capacity(all);
        for backend in untried {
            match health.standing(backend, now) {
                Standing::In => of_use.push(backend),
                Standing::Out => {}
                Standing::Due => {
                    health.begin_trial(backend, now);
                    return Some(self.exchange(backend, Standing::Due));
                }
            }
        }
        if of_use.is_empty() {
            return None;
        }
        Some(self.exchange(self.less_busy(of_use.len(), |at| of_use[at]), Standing::In))
    }

    /// One that is left out, for a request that `tried` in vain all that are not. What failed for a
    /// while may be well again, and is better than none. `None`: there is no other.
    pub(super) fn choose_left_out(self: &Rc<Self>, tried: &[usize]) -> Option<Exchange> {
        let untried = (0..self.hosts.len()).filter(|at| !tried.contains(at));
        let untried = untried.collect::<Vec<_>>();
        if untried.is_empty() {
            return None;
        }
        Some(self.exchange(self.less_busy(untried.len(), |at| untried[at]), Standing::Out))
    }

    /// Of two among so many, the one with less in flight.
    fn less_busy(&self, of: usize, backend: impl Fn(usize) -> usize) -> usize {
        let one = fastrand::usize(..of);
        if of == 1 {
            return backend(one);
        }
        // Another one, each with the same chance.
        let other = (one + fastrand::usize(1..of)) % of;
        let (one, other) = (backend(one), backend(other));
        if self.in_flight[other].get() < self.in_flight[one].get() { other } else { one }
    }

    fn exchange(self: &Rc<Self>, backend: usize, chosen_as: Standing) -> Exchange {
        self.in_flight[backend].set(self.in_flight[backend].get() + 1);
        let chosen_as = Cell::new(chosen_as);
        let exchange = Exchange { of: self.clone(), backend, chosen_as, place: None };
        exchange.counts().requests.add(1);
        exchange.counts().in_flight.add(1);
        exchange
    }
}

/// A request at a backend, until its response has been read.
pub(super) struct Exchange {
    of: Rc<Backends>,
    pub(super) backend: usize,
    /// Until it has told how the backend is: of one that was left out, an answer brings it back.
    chosen_as: Cell<Standing>,
    /// Of one that asks for an upgrade.
    pub(super) place: Option<Place>,
}

impl Exchange {
    pub(super) fn host(&self) -> &Host<BufferedRequest> {
        &self.of.hosts[self.backend]
    }

    fn counts(&self) -> &BackendCounts {
        self.of.counts.backend(self.backend)
    }

    /// The head of a response came: that settles a trial, however long the rest takes.
    pub(super) fn answered(&self) {
        if self.chosen_as.get() != Standing::In {
            self.succeeded();
        }
    }

    pub(super) fn succeeded(&self) {
        let shared = &self.of.shared;
        if !shared.has_failed[self.backend].load(Ordering::Relaxed) {
            return;
        }
        let mut health = shared.lock();
        let was_left_out = self.chosen_as.replace(Standing::In) != Standing::In;
        if !was_left_out && health.standing(self.backend, Instant::now()) != Standing::In {
            // From before it was left out.
            return;
        }
        let news = health.succeeded(self.backend);
        shared.note(&health, self.backend);
        drop(health);
        if news == News::Yes {
            log::log!(info, backend = %self.host().target(), "the backend is back");
        }
    }

    pub(super) fn failed(&self, why: &impl Display) {
        self.counts().failures.add(1);
        let mut health = self.of.shared.lock();
        self.chosen_as.set(Standing::In);
        let verdict = health.failed(self.backend, Instant::now());
        self.of.shared.note(&health, self.backend);
        drop(health);
        let backend = self.host().target();
        match verdict {
            Verdict::Stays => log::log!(debug, %backend, error = %why, "the backend failed"),
            Verdict::Fails => {
                log::log!(warn, %backend, error = %why, "the backend fails, but is not excluded, because it is the last one");
            }
            Verdict::Ejected { for_, news } => {
                self.counts().ejections.add(1);
                if news == News::Yes {
                    log::log!(warn, %backend, error = %why, "the backend failed, and is excluded for {for_:?}");
                } else {
                    log::log!(debug, %backend, error = %why, "the backend failed again, and is excluded for {for_:?}");
                }
            }
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.of.in_flight[self.backend].set(self.of.in_flight[self.backend].get() - 1);
        self.counts().in_flight.add(-1);
        if self.chosen_as.get() == Standing::Due {
            self.of.shared.lock().end_trial(self.backend);
        }
    }
}
