//! What a connection does, as far as its limits ask: what is in flight, since when it is idle, what
//! it waits for.
//!
//! One [`Watch`] for each connection, shared by what hyper is given (the io, the service, the
//! executor) and by who drives hyper. They only note what happens, without asking a clock. After
//! each poll of hyper's connection its driver asks [`Watch::poll`], which reads the clock if the
//! connection has gone from one [`Phase`] to another, and keeps one timer, armed late: it may be
//! earlier than what is due, never later, so a request that comes and goes moves none. While
//! requests are in flight it ticks, and looks at each of them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use slab::Slab;
use wakeful::time::{seen_until, turn_time};

use super::timer::Timer;
use crate::connection::body_progress::Progress;
use crate::connection::movable_state::Life;
use crate::connection::protocol::Protocol;
use crate::connection::request_names::RequestNames;
use crate::connection::requests::{Key, Request};
use crate::counts::Refusal;
use crate::framing::Framing;
use crate::limits::rate::Waiting;
use crate::loop_state::Local;
use crate::panics;

/// What was refused may take so long to learn of it.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often a driver looks whether it is still busy.
const ASKED: Duration = Duration::from_secs(1);
/// Longer than any limit.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its first request.
    First,
    /// The rest of a request's header.
    Header,
    /// Another request.
    Idle,
    /// What it does: a request is in flight, or a response is not written.
    Busy,
}

/// What its driver should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Poll hyper again: something was decided.
    PollAgain,
    /// Nothing is in flight: close, as the protocol has it.
    Finish,
    /// End it now. It has been counted.
    End(Refusal),
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) local: Rc<Local>,
    pub(crate) protocol: Protocol,
    pub(crate) life: Life,
    pub(crate) requests: RefCell<Slab<Request>>,
    /// Of the requests, for the report of a slow turn.
    pub(crate) names: RequestNames,
    /// The request that the service was called with last, until its stream's task is spawned.
    pub(crate) called: Cell<Option<Key>>,
    /// Of HTTP/2: the connection is gone.
    pub(crate) gone: Cell<bool>,
    /// How many of its streams were upgraded and are open.
    pub(crate) tunnels: Cell<usize>,
    /// Of HTTP/1: the body of the last request that had one. Somebody may read it behind the
    /// response.
    pub(crate) last_body: RefCell<Option<Progress>>,
    /// Of HTTP/1, where an ambiguous length is refused: what was read on this loop.
    pub(crate) framing: Option<RefCell<Framing>>,
    /// See [`leaves_body`](Self::leaves_body).
    leaves_body: Cell<bool>,
    /// Of HTTP/1: the next poll of hyper checks that the client is still there.
    pub(crate) checks_client: Cell<bool>,
    /// The next response is the last one.
    closing: Cell<bool>,
    /// And it ends in any case.
    end_at: Cell<Option<(Instant, Refusal)>>,
    writes: Waiting,
    /// Of HTTP/2: bytes of responses, while some stream is not sent to its end.
    pub(crate) data: Waiting,
    phase: Cell<(Phase, u64, bool)>,
    since: Cell<Instant>,
    ticked: Cell<Instant>,
}

impl Watch {
    pub(crate) fn new(local: Rc<Local>, protocol: Protocol, life: Life) -> Rc<Self> {
        let phase = (Phase::First, life.served(), false);
        let since = life.arrived();
        // HTTP/1 has one at a time: by itself, a slab would allocate room for four.
        let (requests, framing) = match protocol {
            Protocol::Http1 => (Slab::with_capacity(1), Framing::wanted(local.limits())),
            Protocol::Http2 => (Slab::new(), None),
        };
        Rc::new(Self {
            framing,
            local,
            protocol,
            life,
            requests: RefCell::new(requests),
            names: RequestNames::default(),
            called: Cell::new(None),
            gone: Cell::new(false),
            last_body: RefCell::default(),
            tunnels: Cell::new(0),
            leaves_body: Cell::new(false),
            checks_client: Cell::new(false),
            closing: Cell::new(false),
            end_at: Cell::new(None),
            writes: Waiting::default(),
            data: Waiting::default(),
            phase: Cell::new(phase),
            since: Cell::new(since),
            ticked: Cell::new(since),
        })
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// One more request; returns how many there are with it. It may be the last one.
    pub(crate) fn count_request(&self) -> u64 {
        let number = self.life.one_more();
        let most = self.local.limits().max_requests_per_connection;
        if most > 0 && number >= most {
            self.close_soon();
        }
        number
    }

    /// The next response is the last one; what is in flight is taken to its end.
    pub(crate) fn close_soon(&self) {
        self.closing.set(true);
    }

    /// A request was refused in a way that ends the connection.
    pub(crate) fn close_after(&self, refusal: Refusal) {
        self.close_soon();
        self.end_within(LAST_WORDS, refusal);
    }

    /// Was something answered that ends the connection?
    pub(crate) fn was_refused(&self) -> bool {
        self.end_at.get().is_some_and(|(_, refusal)| refusal != Refusal::MaxAge)
    }

    fn end_within(&self, duration: Duration, refusal: Refusal) {
        if self.end_at.get().is_none() {
            self.end_at.set(Some((Instant::now() + duration, refusal)));
        }
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.tunnels.get() > 0 || !self.requests.borrow().is_empty()
    }

    /// Does somebody still hold the body of a request that is not in flight any more?
    pub(crate) fn is_body_held(&self) -> bool {
        self.last_body.borrow().as_ref().is_some_and(|body| !body.is_alone())
    }

    /// Was the last request's body dropped before its end, and nothing read since?
    pub(crate) fn is_body_cut(&self) -> bool {
        self.last_body.borrow().as_ref().is_some_and(Progress::is_cut)
    }

    /// hyper waits for another request, so all of the last body has come.
    pub(crate) fn goes_on(&self) {
        self.leaves_body.set(false);
    }

    /// Does it close before all of the last body has come? Its client may still send the rest.
    pub(crate) fn leaves_body(&self) -> bool {
        self.leaves_body.get() || self.is_body_cut()
    }

    /// Is the rest of a body that nobody wants read next? hyper reads for it once, and closes after
    /// the response if there is more. True once for each such body.
    pub(crate) fn takes_rest_of_body(&self) -> bool {
        let is_cut = self.is_body_cut();
        self.leaves_body.set(is_cut);
        if is_cut {
            self.last_body.replace(None);
        }
        is_cut
    }

    pub(crate) fn is_write_blocked(&self) -> bool {
        self.writes.is_waiting.get()
    }

    pub(crate) fn wrote<E>(&self, written: &Poll<Result<usize, E>>) {
        match written {
            Poll::Ready(Ok(count)) => {
                self.writes.is_waiting.set(false);
                self.writes.bytes.set(self.writes.bytes.get() + *count as u64);
            }
            Poll::Ready(Err(_)) => self.writes.is_waiting.set(false),
            Poll::Pending => self.writes.is_waiting.set(true),
        }
    }

    /// After a poll of hyper's connection: is anything due?
    pub(crate) fn poll(&self, timer: &mut Timer, phase: Phase, cx: &mut Context<'_>) -> Poll<Act> {
        let now = turn_time();
        self.enter(phase, now);
        // The loop has never seen more than the clock: nothing is due.
        if timer.is_set_until(self.due(phase), now, cx) {
            return Poll::Pending;
        }
        // Not the clock: what arrived before a deadline is read first, also after a pause of the
        // process.
        let seen = seen_until();
        loop {
            ready!(timer.poll(self.due(phase), seen, now, cx));
            if seen >= self.due(phase)
                && let Some(act) = self.act(phase, seen)
            {
                return Poll::Ready(act);
            }
        }
    }

    /// Notes since when it is in its phase: from a request's end to the next one's beginning it has
    /// been in another one, though nobody has looked.
    fn enter(&self, phase: Phase, now: Instant) {
        let (before, ..) = self.phase.get();
        let here = (phase, self.life.served(), self.closing.get());
        let same =
            matches!((before, phase), (Phase::First, Phase::Header) | (Phase::Busy, Phase::Busy));
        if self.phase.replace(here) == here || same {
            return;
        }
        self.since.set(now);
        if before != Phase::Busy {
            self.ticked.set(now);
        }
    }

    /// When to look again.
    fn due(&self, phase: Phase) -> Instant {
        let limits = self.local.limits();
        let since = self.since.get();
        let mut due = since
            + match phase {
                Phase::First | Phase::Idle if self.closing.get() => self.patience(),
                Phase::First | Phase::Header => limits.header_timeout,
                Phase::Idle => limits.idle_timeout,
                Phase::Busy => FAR,
            };
        // With HTTP/1, only the tick notices a client that is gone.
        let is_looked_at = || self.protocol == Protocol::Http1 || self.is_to_be_asked();
        if phase == Phase::Busy
            && let Some(tick) = limits.tick().or_else(|| is_looked_at().then_some(ASKED))
        {
            due = self.ticked.get() + tick;
        }
        if let (Some(expires), false) = (self.life.expires(), self.closing.get()) {
            due = due.min(expires);
        }
        if let Some((end_at, _)) = self.end_at.get() {
            due = due.min(end_at);
        }
        due
    }

    /// What keeps it busy is nothing that is seen here, and nobody says when that is over: its
    /// driver looks.
    fn is_to_be_asked(&self) -> bool {
        !self.is_in_flight() && !self.is_write_blocked()
    }

    /// How long it may be idle once it is closing: a request may be on its way.
    fn patience(&self) -> Duration {
        match self.protocol {
            Protocol::Http1 => self.local.linger(),
            Protocol::Http2 => self.local.going_away(),
        }
    }

    /// Something is due. `None`: nothing for the driver.
    fn act(&self, phase: Phase, now: Instant) -> Option<Act> {
        if let Some((end_at, refusal)) = self.end_at.get()
            && now >= end_at
        {
            if refusal != Refusal::MaxAge {
                return Some(Act::End(refusal));
            }
            if !matches!(phase, Phase::First | Phase::Idle) {
                self.local.refuse(refusal);
                return Some(Act::End(refusal));
            }
            // Nothing is lost.
            return Some(Act::Finish);
        }
        if !self.closing.get() && self.life.expires().is_some_and(|expires| now >= expires) {
            self.close_soon();
            let grace = self.local.limits().max_age.map_or(FAR, |max_age| max_age.grace);
            self.end_within(grace, Refusal::MaxAge);
            return Some(Act::PollAgain);
        }
        match phase {
            Phase::First if self.closing.get() => Some(Act::Finish),
            Phase::First | Phase::Header => {
                self.local.refuse(Refusal::HeaderTimeout);
                Some(Act::End(Refusal::HeaderTimeout))
            }
            Phase::Idle => {
                if !self.closing.get() {
                    self.local.refuse(Refusal::IdleTimeout);
                    self.close_soon();
                }
                Some(Act::Finish)
            }
            Phase::Busy => self.tick(now),
        }
    }

    /// Looks at all that is in flight.
    fn tick(&self, now: Instant) -> Option<Act> {
        let limits = self.local.limits();
        // The next tick polls hyper first.
        self.checks_client.set(self.protocol == Protocol::Http1);
        let passed = now.saturating_duration_since(self.ticked.replace(now));
        // A tick that is later than another one would have been: the process was stopped, and did
        // not read. The client is not to blame.
        let stopped = passed.saturating_sub(2 * limits.tick().unwrap_or(ASKED));
        let passed = passed - stopped;
        if let Some(rate) = limits.min_rate
            && self.writes.is_too_slow(rate, passed)
        {
            self.local.refuse(Refusal::SlowResponse);
            return Some(Act::End(Refusal::SlowResponse));
        }
        let is_stalled = limits.min_rate.is_some_and(|rate| self.data.is_too_slow(rate, passed));
        if is_stalled && self.is_to_be_asked() {
            // All that is left is with h2, and the client gives no room for it.
            self.local.refuse(Refusal::SlowResponse);
            return Some(Act::End(Refusal::SlowResponse));
        }
        let window = limits.min_rate.map_or(FAR, |rate| rate.window);
        let mut act = None;
        let mut wake = Vec::new();
        for (_, request) in &mut *self.requests.borrow_mut() {
            request.spare(stopped);
            let looked = request.look(limits, now, passed);
            let looked = looked.or_else(|| request.look_at_response(now, window, is_stalled));
            let Some(refusal) = looked else { continue };
            self.local.refuse(refusal);
            // HTTP/1 has nothing else to abort than the connection.
            act = match act {
                Some(Act::End(_)) => act,
                _ if request.is_aborted() && self.protocol == Protocol::Http1 => {
                    Some(Act::End(refusal))
                }
                _ => Some(Act::PollAgain),
            };
            wake.extend(request.waker.take());
        }
        wake.into_iter().for_each(panics::wake);
        if self.is_to_be_asked() {
            return Some(Act::PollAgain);
        }
        act
    }
}
