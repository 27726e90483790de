//! A loop of a group, and what has arrived for it.

use std::collections::VecDeque;

use crate::costs::Costs;
use crate::one_loop::{Found, Loop};
use crate::outcome::Outcome;
use crate::policy::Policy;

/// By this time a steady load has settled. Measurements begin here, in nanoseconds.
pub const SETTLED: u64 = 5_000_000_000;

/// Something for a loop to do. Times are in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// When its client has sent it.
    arrived: f64,
    /// When its loop can see it: later than `arrived`, if it came with a connection that was moved.
    ready: f64,
    /// Its connection. A move has none, and takes a loop as long as a request without work.
    connection: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Member<'a> {
    one: Loop<'a>,
    /// The work of each request, in addition to its costs.
    work: f64,
    /// By rising `ready`.
    queue: VecDeque<Request>,
    /// How many of them are in the batch that is being answered.
    batch: usize,
    /// If no batch is being answered: when the loop runs again.
    found: Option<Found>,
    busy: f64,
    responses: Vec<u64>,
}

impl<'a> Member<'a> {
    pub(super) fn new(policy: Policy, costs: &'a Costs, work: f64) -> Self {
        Self {
            one: Loop::new(policy, costs).counted_from(SETTLED as f64),
            work,
            queue: VecDeque::new(),
            batch: 0,
            found: None,
            busy: 0.0,
            responses: Vec::new(),
        }
    }

    /// Adds a request of a connection that is on this loop, after all that came earlier.
    pub(super) fn arrives(&mut self, at: f64, connection: usize) {
        self.queue.push_back(Request { arrived: at, ready: at, connection: Some(connection) });
    }

    /// Takes a connection away, and returns what it has sent and was not read.
    pub(super) fn leaves(&mut self, connection: usize, now: f64) -> Vec<Request> {
        let is_its = |request: &Request| request.connection == Some(connection);
        self.batch -= self.queue.iter().take(self.batch).filter(|it| is_its(it)).count();
        let unread = self.queue.iter().filter(|it| is_its(it)).copied().collect();
        self.queue.retain(|it| !is_its(it));
        self.has_moved(now);
        unread
    }

    /// Gives the loop a connection.
    pub(super) fn joins(&mut self, unread: Vec<Request>, now: f64) {
        self.has_moved(now);
        self.queue.extend(unread.into_iter().map(|request| Request { ready: now, ..request }));
    }

    fn has_moved(&mut self, now: f64) {
        self.queue.push_back(Request { arrived: now, ready: now, connection: None });
    }

    /// Runs until `now`. Everything that arrives until then is known. Returns how long the loop was
    /// busy.
    pub(super) fn run_until(&mut self, now: f64) -> f64 {
        while self.one.free() < now {
            if self.batch == 0 && !self.begin(now) {
                break;
            }
            // The batch is empty if the loop was woken for a connection that has left since.
            if self.batch > 0 {
                self.answer();
            }
        }
        let before = std::mem::replace(&mut self.busy, self.one.busy_until(now));
        self.busy - before
    }

    /// Begins the next batch, if that is before `now`.
    fn begin(&mut self, now: f64) -> bool {
        let found = match (self.found.take(), self.queue.front()) {
            (Some(found), _) => found,
            (None, Some(first)) => self.one.wait(first.ready),
            (None, None) => return false,
        };
        if found.at >= now {
            // Which other requests are ready by then is not known yet.
            self.found = Some(found);
            return false;
        }
        self.one.run(found);
        self.batch = self.queue.partition_point(|request| request.ready <= found.at);
        true
    }

    fn answer(&mut self) {
        self.batch -= 1;
        let Some(request) = self.queue.pop_front() else { return };
        let longer = if request.connection.is_some() { self.work } else { 0.0 };
        let response = self.one.answer(request.arrived, longer);
        if request.connection.is_some() && request.arrived >= SETTLED as f64 {
            self.responses.push(response as u64);
        }
    }

    /// Returns the outcome until `end`, and how many requests are not answered.
    pub(super) fn finish(mut self, end: f64) -> (Outcome, usize) {
        if self.queue.is_empty() && self.found.is_none() {
            self.one.wait_in_vain(end);
        }
        let mine = |it: &&Request| it.connection.is_some() && it.arrived >= SETTLED as f64;
        let answered = self.responses.len();
        let mut responses = self.responses;
        responses.extend(self.queue.iter().filter(mine).map(|it| (end - it.arrived) as u64));
        let unanswered = responses.len() - answered;
        (Outcome { responses, ..self.one.into_outcome() }, unanswered)
    }
}
