//! The backends: which one a request gets, and what it turned out to be like.
//!
//! Each loop has connections of its own to each backend, counts what it has in flight there, and
//! chooses by that alone: of two backends at random the one with less. Only what is known against a
//! backend is shared by all loops ([`members`](super::members)), behind a lock that nobody takes to
//! choose unless a backend is out, or for an answer unless it is of one that has failed.
//!
//! A backend that goes gets no more requests. Those in flight there keep it ([`Exchange`]), and its
//! idle connections close.

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

use super::counts::{LoopCounts, OnLoop};
use super::descriptors::Idle;
use super::health::{Id, News, Standing, Verdict};
use super::members::{Backend, Members};
use super::request_body::BufferedRequest;
use super::tunnel::Place;
use crate::log;

/// What one loop has.
pub(super) struct Backends {
    members: Arc<Members>,
    client: Client<BufferedRequest>,
    idle: Idle,
    counts: Arc<LoopCounts>,
    here: RefCell<Vec<Rc<OnThisLoop>>>,
}

/// What one loop has of one backend.
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

    /// From now on these are the backends.
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

    /// There is none: no name has an address.
    pub(super) fn are_none(&self) -> bool {
        self.here.borrow().is_empty()
    }

    /// A backend for a request that `tried` others in vain; `None`: there is no other.
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

    /// One that is left out, for a request that `tried` in vain all that are not. What failed for a
    /// while may be well again, and is better than none. `None`: there is no other.
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
        Exchange { members, at, chosen_as: Cell::new(chosen_as), place: None }
    }
}

/// As long as there are any, and the loop has backends.
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

/// Of two at random, the one with less in flight. `None`: there are none.
fn less_busy(of: &[impl Borrow<Rc<OnThisLoop>>]) -> Option<&Rc<OnThisLoop>> {
    let at = |place: usize| of[place].borrow();
    let one = match of.len() {
        0 => return None,
        1 => return Some(at(0)),
        many => fastrand::usize(..many),
    };
    // Another one, each with the same chance.
    let other = (one + fastrand::usize(1..of.len())) % of.len();
    let (one, other) = (at(one), at(other));
    Some(if other.in_flight.get() < one.in_flight.get() { other } else { one })
}

/// A request at a backend, until its response has been read.
pub(super) struct Exchange {
    members: Arc<Members>,
    at: Rc<OnThisLoop>,
    /// Until it has told how the backend is: of one that was left out, an answer brings it back.
    chosen_as: Cell<Standing>,
    /// Of one that asks for an upgrade.
    pub(super) place: Option<Place>,
}

impl Exchange {
    pub(super) fn host(&self) -> &Host<BufferedRequest> {
        &self.at.host
    }

    pub(super) fn backend(&self) -> Id {
        self.at.backend.id
    }

    /// The head of a response came: that settles a trial, however long the rest takes.
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
            // From before it was left out.
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
            self.members.health().end_trial(self.at.backend.id);
        }
    }
}
