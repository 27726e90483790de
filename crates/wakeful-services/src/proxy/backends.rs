//! Chooses a backend for each request, and records how the backend does.
//!
//! Each loop has its own connections to each backend, counts its requests in flight there, and
//! chooses by that number alone: of two random backends it takes the one with fewer. All loops
//! share one thing, behind a lock: what is known about failures (`members`). A choice takes the
//! lock only if a backend is left out, and an answer only if its backend has failed before.
//!
//! A backend that is removed gets no more requests. Its requests in flight keep it alive
//! ([`Exchange`]), and its idle connections close.

use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt::Display;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use async_channel::Receiver;
use wakeful_http::client::{Client, Host};
use wakeful_http::layers::bound::Held;

use super::counts::{LoopCounts, OnLoop};
use super::descriptors::Idle;
use super::health::{Id, News, Standing, Verdict};
use super::members::{Backend, Members};
use super::request_body::BufferedRequest;
use super::tunnel::Place;
use crate::log;

/// The backends of one loop.
pub(super) struct Backends {
    members: Arc<Members>,
    client: Client<BufferedRequest>,
    idle: Idle,
    counts: Arc<LoopCounts>,
    here: RefCell<Vec<Rc<OnThisLoop>>>,
}

/// The state of one backend on one loop.
struct OnThisLoop {
    backend: Arc<Backend>,
    host: Host<BufferedRequest>,
    in_flight: Cell<usize>,
    counts: Arc<OnLoop>,
}

impl Backends {
    /// Follows the changes of `members`.
    pub(super) fn new(
        members: Arc<Members>,
        client: Client<BufferedRequest>,
        idle: Idle,
        counts: Arc<LoopCounts>,
    ) -> Rc<Self> {
        let changes = members.follow();
        let this = Rc::new(Self { members, client, idle, counts, here: RefCell::default() });
        this.take(this.members.all());
        if let Some(changes) = changes {
            wakeful::spawn(take_changes(Rc::downgrade(&this), changes)).detach();
        }
        this
    }

    /// Replaces the list of backends.
    fn take(&self, all: Vec<Arc<Backend>>) {
        let ids: HashSet<_> = all.iter().map(|one| one.id).collect();
        let before = self.here.take();
        let (mut here, gone): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|one| ids.contains(&one.backend.id));
        gone.iter().for_each(|one| self.client.retire(&one.backend.target));
        let known: HashSet<_> = here.iter().map(|one| one.backend.id).collect();
        let new = all.into_iter().filter(|one| !known.contains(&one.id));
        here.extend(new.map(|backend| self.begin(backend)));
        let max_idle = self.idle.of_each(here.len());
        here.iter().for_each(|one| one.host.set_max_idle(max_idle));
        self.here.replace(here);
    }

    fn begin(&self, backend: Arc<Backend>) -> Rc<OnThisLoop> {
        let host = self.client.host(&backend.target);
        let counts = backend.counts.on_loop(&self.counts);
        Rc::new(OnThisLoop { backend, host, in_flight: Cell::new(0), counts })
    }

    /// Is there no backend, because no name has an address?
    pub(super) fn are_none(&self) -> bool {
        self.here.borrow().is_empty()
    }

    /// Chooses a backend for a request that has `tried` others in vain. `None`: there is no other.
    pub(super) fn choose(&self, tried: &[Id]) -> Option<Exchange> {
        let here = self.here.borrow();
        if tried.is_empty() && !self.members.is_one_out() {
            return Some(self.exchange(less_busy(&here)?, Standing::In));
        }
        let mut health = self.members.health();
        let now = Instant::now();
        let mut of_use = Vec::with_capacity(here.len());
        for one in untried(&here, tried) {
            match health.standing(one.backend.id, now) {
                Standing::In => of_use.push(one),
                Standing::Out => {}
                Standing::Due => {
                    health.begin_trial(one.backend.id, now);
                    return Some(self.exchange(one, Standing::Due));
                }
            }
        }
        Some(self.exchange(less_busy(&of_use)?, Standing::In))
    }

    /// Chooses a backend that is left out, for a request that has tried all others in vain. A
    /// backend that failed may work again, and is better than none. `None`: there is no other.
    pub(super) fn choose_left_out(&self, tried: &[Id]) -> Option<Exchange> {
        let here = self.here.borrow();
        let untried: Vec<_> = untried(&here, tried).collect();
        Some(self.exchange(less_busy(&untried)?, Standing::Out))
    }

    fn exchange(&self, at: &Rc<OnThisLoop>, chosen_as: Standing) -> Exchange {
        at.in_flight.set(at.in_flight.get() + 1);
        at.counts.requests.add(1);
        at.counts.in_flight.add(1);
        let (members, at) = (self.members.clone(), at.clone());
        let (chosen_as, place, held) = (Cell::new(chosen_as), None, None);
        Exchange { members, at, chosen_as, place, held }
    }
}

/// Takes changes of the list, as long as they come, and the loop has backends.
async fn take_changes(backends: Weak<Backends>, changes: Receiver<()>) {
    while let Ok(()) = changes.recv().await {
        let Some(backends) = backends.upgrade() else { return };
        backends.take(backends.members.all());
    }
}

fn untried<'a>(
    here: &'a [Rc<OnThisLoop>],
    tried: &'a [Id],
) -> impl Iterator<Item = &'a Rc<OnThisLoop>> {
    here.iter().filter(|one| !tried.contains(&one.backend.id))
}

/// Chooses two random backends, and takes the one with fewer requests in flight. `None`: there are
/// none.
fn less_busy(of: &[impl Borrow<Rc<OnThisLoop>>]) -> Option<&Rc<OnThisLoop>> {
    let at = |place: usize| of[place].borrow();
    let one = match of.len() {
        0 => return None,
        1 => return Some(at(0)),
        many => fastrand::usize(..many),
    };
    // The second one is another one, and each has the same chance.
    let other = (one + fastrand::usize(1..of.len())) % of.len();
    let (one, other) = (at(one), at(other));
    Some(if other.in_flight.get() < one.in_flight.get() { other } else { one })
}

/// A request at a backend, until its response has been read.
pub(super) struct Exchange {
    members: Arc<Members>,
    at: Rc<OnThisLoop>,
    /// How the backend was chosen, until the exchange has reported. An answer of a backend that was
    /// left out brings it back.
    chosen_as: Cell<Standing>,
    /// The place of a request that asks for an upgrade.
    pub(super) place: Option<Place>,
    /// The right to use a connection, if these are bounded.
    pub(super) held: Option<Held>,
}

impl Exchange {
    pub(super) fn host(&self) -> &Host<BufferedRequest> {
        &self.at.host
    }

    pub(super) fn backend(&self) -> Id {
        self.at.backend.id
    }

    /// Called when the head of a response has come. That completes a trial, however long the rest
    /// takes.
    pub(super) fn answered(&self) {
        if self.chosen_as.get() != Standing::In {
            self.succeeded();
        }
    }

    pub(super) fn succeeded(&self) {
        let backend = &*self.at.backend;
        if !backend.has_failed.load(Ordering::Relaxed) {
            return;
        }
        let mut health = self.members.health();
        let was_left_out = self.chosen_as.replace(Standing::In) != Standing::In;
        if !was_left_out && health.standing(backend.id, Instant::now()) != Standing::In {
            // The request is from before the backend was left out.
            return;
        }
        let news = health.succeeded(backend.id);
        self.members.note(&health, backend);
        drop(health);
        if news == News::Yes {
            log::log!(info, backend = %backend.target, "the backend is back");
        }
    }

    pub(super) fn failed(&self, why: &impl Display) {
        self.at.counts.failures.add(1);
        let mut health = self.members.health();
        self.chosen_as.set(Standing::In);
        let verdict = health.failed(self.at.backend.id, Instant::now());
        self.members.note(&health, &self.at.backend);
        drop(health);
        let backend = &self.at.backend.target;
        match verdict {
            Verdict::Stays => log::log!(debug, %backend, error = %why, "the backend failed"),
            Verdict::Fails => {
                log::log!(warn, %backend, error = %why, "the backend fails, but is not excluded, because it is the last one");
            }
            Verdict::Ejected { for_, news } => {
                self.at.counts.ejections.add(1);
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
        self.at.in_flight.set(self.at.in_flight.get() - 1);
        self.at.counts.in_flight.add(-1);
        if self.chosen_as.get() == Standing::Due {
            self.members.health().end_trial(self.at.backend.id, Instant::now());
        }
    }
}
