//! A connection's deadlines: the wait for a request's header, for another request, and for the end
//! of what is in flight.
//!
//! The parts that hyper gets (the io, the service, the executor) only record events in the
//! [`ConnectionState`], without reading a clock. After each poll of hyper's connection its driver
//! calls [`ConnectionState::poll_deadlines`]. This reads the clock if the connection has changed
//! its [`Phase`], and keeps one timer, which is armed late: it may fire before the deadline, but
//! never after it, so a request that comes and goes does not move the timer. While requests are in
//! flight the timer ticks, and `tick` checks each of them.

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use wakeful::time::{seen_until, turn_time};

use super::phase::{Act, Phase};
use super::protocol::Protocol;
use super::state::ConnectionState;
use super::tick::TICK;
use super::timer::Timer;
use crate::counts::Refusal;

/// A time that is longer than any limit.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

impl ConnectionState {
    /// Called after a poll of hyper's connection. Returns what is due.
    pub(crate) fn poll_deadlines(
        &self,
        timer: &mut Timer,
        phase: Phase,
        cx: &mut Context<'_>,
    ) -> Poll<Act> {
        let now = turn_time();
        self.clock.ticks(self.ticks(phase), now);
        self.clock.enter(phase, self.movable().served(), self.closing().has_begun(), now);
        // What the loop has seen is never newer than the clock, so nothing can be due here.
        if timer.is_set_until(self.due(phase), now, cx) {
            return Poll::Pending;
        }
        // This is not the clock's time, because what arrived before a deadline must be read first,
        // also after a pause of the process.
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

    /// Is anything in flight that has limits of its own? With HTTP/2 that may be so while the
    /// header of another request comes.
    fn ticks(&self, phase: Phase) -> bool {
        let is_any_in_flight = || !self.needs_polling() || self.writes().has_open_streams();
        phase == Phase::Busy || phase == Phase::Header && is_any_in_flight()
    }

    /// When the wait for a header, or for another request, is over.
    fn wait_ends(&self, phase: Phase) -> Instant {
        let limits = self.loop_state().limits();
        self.clock.since()
            + match phase {
                Phase::First | Phase::Idle if self.closing().has_begun() => self.patience(),
                Phase::First | Phase::Header => limits.header_timeout,
                Phase::Idle => limits.idle_timeout,
                Phase::Busy => FAR,
            }
    }

    /// When to check again.
    fn due(&self, phase: Phase) -> Instant {
        let limits = self.loop_state().limits();
        let mut due = self.wait_ends(phase);
        // With HTTP/1, only the tick notices that a client is gone.
        let is_looked_at = || self.protocol() == Protocol::Http1 || self.needs_polling();
        if self.ticks(phase)
            && let Some(tick) = limits.tick().or_else(|| is_looked_at().then_some(TICK))
        {
            due = due.min(self.clock.ticked() + tick);
        }
        if let (Some(expires), None) = (self.movable().expires(), self.closing().end_at()) {
            due = due.min(expires);
        }
        if let Some((end_at, _)) = self.closing().end_at() {
            due = due.min(end_at);
        }
        due
    }

    /// How long a closing connection may be idle, because a request may be on its way.
    fn patience(&self) -> Duration {
        match self.protocol() {
            Protocol::Http1 => self.loop_state().linger(),
            Protocol::Http2 => self.loop_state().going_away(),
        }
    }

    /// Handles what is due. `None`: the driver has nothing to do.
    fn act(&self, phase: Phase, now: Instant) -> Option<Act> {
        let grace = self.loop_state().limits().max_age.map_or(FAR, |max_age| max_age.grace);
        if self.ticks(phase) {
            self.closing().spare(self.stopped(now), grace, now);
        }
        if let Some((end_at, refusal)) = self.closing().end_at()
            && now >= end_at
        {
            if refusal != Refusal::MaxAge {
                return Some(Act::End(refusal));
            }
            if !matches!(phase, Phase::First | Phase::Idle) {
                self.loop_state().refuse(refusal);
                return Some(Act::End(refusal));
            }
            // Nothing is in flight, so nothing is lost.
            return Some(Act::Finish);
        }
        // This includes a connection that is closing already, because an HTTP/2 client that was
        // told may still send requests.
        if self.closing().end_at().is_none()
            && self.movable().expires().is_some_and(|expires| now >= expires)
        {
            self.closing().begin();
            self.closing().end_within(grace, Refusal::MaxAge);
            return Some(Act::PollAgain);
        }
        match phase {
            Phase::First if self.closing().has_begun() => Some(Act::Finish),
            Phase::Header if now < self.wait_ends(phase) => self.tick(now),
            Phase::First | Phase::Header => {
                self.loop_state().refuse(Refusal::HeaderTimeout);
                Some(Act::End(Refusal::HeaderTimeout))
            }
            Phase::Idle => {
                if !self.closing().has_begun() {
                    self.loop_state().refuse(Refusal::IdleTimeout);
                    self.closing().begin();
                }
                Some(Act::Finish)
            }
            Phase::Busy => self.tick(now),
        }
    }
}
