//! Decides which workers there should be. It neither forks nor kills. The master tells it what
//! happened and when, and carries out its orders.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::port_groups::Inside;
use crate::reports::WorkerState;

/// A worker died young if it dies sooner than this after its start, or before it is ready. After
/// such a death the place is filled again after a pause, which doubles each time.
const YOUNG: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What the master should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start a worker in this place, and report it by [`Crew::started`] or [`Crew::cannot_start`].
    Start(usize),
    /// Make this worker drain.
    Drain(WorkerId),
}

/// Identifies a worker. An id is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkerId(u64);

/// What the end of a worker means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The worker was told to end.
    Expected,
    /// Another worker is started in its place, perhaps after a pause.
    Sudden,
    /// The worker should have replaced another one, and never accepted. So no further worker is
    /// replaced.
    Replacement,
    /// The same, but after the worker's start another replacement of all was requested. That one
    /// goes on.
    Superseded,
    /// The worker was among the first, and never served. No worker serves in its place.
    First,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Starting,
    Ready,
    Draining,
}

#[derive(Debug)]
struct Member {
    id: WorkerId,
    place: usize,
    state: State,
    since: Instant,
    /// How many replacements of all had been requested when the worker was started.
    generation: u64,
}

/// The next start in a place, after deaths.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    pause: Duration,
    not_before: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct Crew {
    wanted: usize,
    members: Vec<Member>,
    places: Vec<Place>,
    /// Places that are no longer wanted, but where clients wait. One more worker is started there,
    /// and drains as soon as it accepts.
    clearing: BTreeSet<usize>,
    generation: u64,
    /// Whether workers of earlier generations must be replaced.
    is_replacing: bool,
    /// Whether all workers that were wanted at the start have accepted.
    has_begun: bool,
    is_ending: bool,
    /// The places where, since the end began, a worker has been started for clients that waited
    /// there.
    cleared_at_the_end: BTreeSet<usize>,
    next_id: u64,
}

impl Crew {
    pub(crate) fn new(wanted: usize) -> Self {
        Self {
            wanted,
            members: Vec::new(),
            places: Vec::new(),
            clearing: BTreeSet::new(),
            generation: 0,
            is_replacing: false,
            has_begun: false,
            is_ending: false,
            cleared_at_the_end: BTreeSet::new(),
            next_id: 0,
        }
    }

    /// Returns the next order. The master calls this until there is none.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Order> {
        self.place_to_fill(now).map(Order::Start).or_else(|| self.next_to_drain().map(Order::Drain))
    }

    /// When to call [`next`](Self::next) again at the latest, even if nothing happens.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let may_replace = self.is_replacing && !self.is_starting();
        let lacks = |place: &usize| {
            !self.is_filled(*place) || (may_replace && !self.is_filled_by_this_generation(*place))
        };
        let places = (0..self.wanted_now()).filter(lacks).chain(self.places_to_clear());
        places.filter_map(|place| self.places.get(place)?.not_before).min()
    }

    /// Notes that a worker was started in this place.
    pub(crate) fn started(&mut self, place: usize, now: Instant) -> WorkerId {
        let id = WorkerId(self.next_id);
        self.next_id += 1;
        let generation = self.generation;
        self.members.push(Member { id, place, state: State::Starting, since: now, generation });
        id
    }

    /// Have all workers accepted that were wanted at the start?
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Notes that no process could be started for this place. Returns whether to try again after a
    /// pause: the first workers must all start, but not what should replace one of them.
    pub(crate) fn cannot_start(&mut self, place: usize, now: Instant) -> bool {
        if self.is_ending {
            self.clearing.remove(&place);
        }
        self.pause(place, now);
        self.has_begun || self.is_filled(place)
    }

    /// Notes that a worker accepts. Returns whether that completes the start or a replacement of
    /// all.
    pub(crate) fn ready(&mut self, id: WorkerId) -> bool {
        if let Some(member) = self.members.iter_mut().find(|member| member.id == id)
            && member.state == State::Starting
        {
            member.state = State::Ready;
        }
        self.completes()
    }

    /// Do all wanted workers accept, for the first time since the start or since a replacement of
    /// all was requested? If a replacement was requested before the first workers accept, a later
    /// failure of it ends no worker.
    fn completes(&mut self) -> bool {
        let wanted = self.wanted_now();
        let all = |is_so: &dyn Fn(usize) -> bool| wanted > 0 && (0..wanted).all(is_so);
        let begins = !self.has_begun && all(&|place| self.accepts(place));
        let is_whole = all(&|place| self.is_filled_by_this_generation(place));
        let is_replaced = is_whole && self.is_replacing;
        self.has_begun |= begins;
        self.is_replacing &= !is_whole;
        begins || is_replaced
    }

    /// Notes that a worker is dead. `has_served`: it served clients, although it may not have said
    /// that it accepts.
    pub(crate) fn lost(&mut self, id: WorkerId, has_served: bool, now: Instant) -> Loss {
        let Some(position) = self.members.iter().position(|member| member.id == id) else {
            return Loss::Expected;
        };
        let member = self.members.swap_remove(position);
        if self.is_ending && member.state != State::Draining {
            // Another worker would fare no better, so none is started for the clients that wait
            // there.
            self.clearing.remove(&member.place);
        }
        if member.state == State::Draining || self.is_ending {
            return Loss::Expected;
        }
        let was_young = member.state == State::Starting || now - member.since < YOUNG;
        if !was_young {
            self.places[member.place] = Place::default();
        } else {
            self.pause(member.place, now);
        }
        if member.state == State::Ready {
            return Loss::Sudden;
        }
        if self.is_filled(member.place) {
            if self.is_replacing && member.generation < self.generation {
                // That request does not wait for the pause.
                self.places[member.place] = Place::default();
                return Loss::Superseded;
            }
            self.is_replacing = false;
            return Loss::Replacement;
        }
        if self.has_begun || has_served { Loss::Sudden } else { Loss::First }
    }

    /// Requests that each worker be replaced by one that starts from now on.
    pub(crate) fn replace_all(&mut self) {
        self.generation += 1;
        self.is_replacing = true;
        // An explicit request does not wait for the pauses.
        self.places.fill(Place::default());
    }

    /// Stops the replacement. Returns whether one was under way.
    pub(crate) fn stop_replacing(&mut self) -> bool {
        std::mem::take(&mut self.is_replacing)
    }

    /// Sets how many workers are wanted. Returns whether that completes the start or a replacement
    /// of all, because the workers for which it waited are no longer wanted.
    pub(crate) fn set_wanted(&mut self, wanted: usize) -> bool {
        self.wanted = wanted;
        if wanted > 0 {
            self.clearing.retain(|place| *place >= wanted);
        }
        self.completes()
    }

    pub(crate) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Notes that clients wait in this place, which is not wanted, and where no worker accepts.
    pub(crate) fn clear(&mut self, place: usize) {
        self.clearing.insert(place);
    }

    /// Notes that clients wait in this place while all workers end. Returns whether a worker is
    /// started for them, which happens only once for each place.
    pub(crate) fn clear_at_the_end(&mut self, place: usize) -> bool {
        // Clients are not served if the end comes before all of the first workers have accepted.
        let may = self.has_begun && self.cleared_at_the_end.insert(place);
        if may {
            self.clearing.insert(place);
            if let Some(place) = self.places.get_mut(place) {
                *place = Place::default();
            }
        }
        may
    }

    /// Must a worker still accept what waits in a place that is not wanted?
    pub(crate) fn is_clearing(&self) -> bool {
        !self.clearing.is_empty()
    }

    pub(crate) fn stop_clearing(&mut self) {
        self.clearing.clear();
    }

    /// Does a worker accept in this place?
    pub(crate) fn accepts(&self, place: usize) -> bool {
        self.in_place(place).any(|member| member.state == State::Ready)
    }

    /// Was this worker told to drain?
    pub(crate) fn drains(&self, id: WorkerId) -> bool {
        self.members.iter().any(|member| member.id == id && member.state == State::Draining)
    }

    /// The state of a place that is not wanted.
    pub(crate) fn inside(&self, place: usize) -> Inside {
        if self.clearing.contains(&place) || self.is_filled(place) {
            Inside::Accepting
        } else if self.members.iter().any(|member| member.place == place) {
            Inside::Draining
        } else {
            Inside::Nobody
        }
    }

    /// The place of this worker, and what it is doing.
    pub(crate) fn place_and_state(&self, id: WorkerId) -> Option<(usize, WorkerState)> {
        let member = self.members.iter().find(|member| member.id == id)?;
        let state = match member.state {
            _ if self.is_ending => WorkerState::Draining,
            State::Starting => WorkerState::Starting,
            State::Ready => WorkerState::Serving,
            State::Draining => WorkerState::Draining,
        };
        Some((member.place, state))
    }

    /// Ends all workers: they drain, and no new one is started, except [where clients
    /// wait](Self::clear_at_the_end).
    pub(crate) fn end(&mut self) {
        self.clearing.clear();
        self.is_ending = true;
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Has the end begun, and is no worker left or needed?
    pub(crate) fn is_over(&self) -> bool {
        self.is_ending && self.members.is_empty() && self.clearing.is_empty()
    }

    fn wanted_now(&self) -> usize {
        if self.is_ending { 0 } else { self.wanted }
    }

    fn in_place(&self, place: usize) -> impl Iterator<Item = &Member> {
        let serves = |member: &&Member| member.state != State::Draining;
        self.members.iter().filter(move |member| member.place == place).filter(serves)
    }

    fn is_filled(&self, place: usize) -> bool {
        self.in_place(place).next().is_some()
    }

    fn is_filled_by_this_generation(&self, place: usize) -> bool {
        self.in_place(place)
            .any(|member| member.state == State::Ready && member.generation == self.generation)
    }

    fn is_starting(&self) -> bool {
        self.members.iter().any(|member| member.state == State::Starting)
    }

    /// The places to clear where no worker is yet. While all workers are told to drain, clients
    /// there continue to wait.
    fn places_to_clear(&self) -> impl Iterator<Item = usize> {
        let places = self.clearing.iter().copied().filter(|_| self.clears_places());
        places.filter(|place| !self.is_filled(*place))
    }

    fn clears_places(&self) -> bool {
        self.is_ending || self.wanted > 0
    }

    fn place_to_fill(&mut self, now: Instant) -> Option<usize> {
        let wanted = self.wanted_now();
        let places = self.clearing.last().map_or(0, |last| last + 1).max(wanted);
        if self.places.len() < places {
            self.places.resize(places, Place::default());
        }
        let may_start = |place: &usize| self.places[*place].not_before.is_none_or(|at| at <= now);
        let empty = (0..wanted).find(|place| !self.is_filled(*place) && may_start(place));
        let empty = empty.or_else(|| self.places_to_clear().find(may_start));
        if empty.is_some() || !self.is_replacing {
            return empty;
        }
        // Workers are replaced one after another, so that there is only one more than wanted.
        if self.is_starting() {
            return None;
        }
        (0..wanted).find(|place| !self.is_filled_by_this_generation(*place) && may_start(place))
    }

    /// Marks the next worker that should drain as draining.
    fn next_to_drain(&mut self) -> Option<WorkerId> {
        let wanted = self.wanted_now();
        let is_replaced = |old: &Member| {
            let newer = |new: &Member| new.state == State::Ready && new.id > old.id;
            let clears = self.clears_places() && self.clearing.contains(&old.place);
            (old.place >= wanted && !(clears && old.state == State::Starting))
                || self.in_place(old.place).any(newer)
        };
        let serving = self.members.iter().filter(|member| member.state != State::Draining);
        let id = serving.filter(|member| is_replaced(member)).map(|member| member.id).next()?;
        let member = self.members.iter_mut().find(|member| member.id == id)?;
        member.state = State::Draining;
        self.clearing.remove(&member.place);
        Some(id)
    }

    fn pause(&mut self, place: usize, now: Instant) {
        let place = &mut self.places[place];
        place.pause = (place.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        place.not_before = Some(now + place.pause);
    }
}

#[cfg(test)]
mod tests;
