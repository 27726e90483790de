//! A request in flight: from its header to its response's end, and what its limits make of it.

use std::task::Waker;
use std::time::{Duration, Instant};

use crate::connection::body_progress::Progress;
use crate::counts::Refusal;
use crate::limits::Limits;
use crate::limits::rate::Waiting;

/// A request among those of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) place: usize,
    /// Places are used again.
    pub(crate) number: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) number: u64,
    /// `None`: nothing comes of it that is limited.
    pub(crate) body: Option<Progress>,
    pub(crate) reading: Waiting,
    /// When its body's silence began.
    pub(crate) silent_since: Option<Instant>,
    /// When it was seen first.
    pub(crate) begun: Option<Instant>,
    /// Its deadline is its own.
    pub(crate) is_free: bool,
    pub(crate) is_responding: bool,
    /// Of HTTP/2: the service has more to say, or is not asked, because the client gives no room;
    /// and since when that was seen.
    pub(crate) is_held_up: bool,
    pub(crate) held_up_since: Option<Instant>,
    pub(crate) verdict: Option<Refusal>,
    pub(crate) waker: Option<Waker>,
}

/// Whom a request's limits spare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nobody.
    Plain,
    /// A stream that has its own idea of time: gRPC, or a tunnel.
    Free,
}

impl Request {
    /// For so long the process was stopped: that is not held against it.
    pub(crate) fn spare(&mut self, stopped: Duration) {
        if !stopped.is_zero() {
            let since = [&mut self.begun, &mut self.silent_since, &mut self.held_up_since];
            since.into_iter().flatten().for_each(|since| *since += stopped);
        }
    }

    /// Looks at it, `passed` after the last time; a refusal that it returns is new.
    pub(crate) fn look(
        &mut self,
        limits: &Limits,
        now: Instant,
        passed: Duration,
    ) -> Option<Refusal> {
        let begun = *self.begun.get_or_insert(now);
        if self.is_free || self.verdict.is_some() {
            return None;
        }
        let is_late = limits.request_timeout.is_some_and(|most| now - begun >= most);
        self.verdict = if is_late {
            Some(Refusal::RequestTimeout)
        } else {
            self.look_at_body(limits, now, passed)
        };
        self.verdict
    }

    fn look_at_body(&mut self, limits: &Limits, now: Instant, passed: Duration) -> Option<Refusal> {
        let (received, is_waiting) = self.body.as_ref()?.now();
        if !is_waiting || received != self.reading.bytes.get() {
            self.silent_since = None;
        }
        self.reading.bytes.set(received);
        self.reading.is_waiting.set(is_waiting);
        let silent = now - *self.silent_since.get_or_insert(now);
        if limits.body_timeout.is_some_and(|most| is_waiting && silent >= most) {
            return Some(Refusal::BodyTimeout);
        }
        // Nothing at all is for the timeout, where there is one.
        let is_silent = limits.body_timeout.is_some() && self.reading.is_silent();
        let rate = limits.min_rate?;
        (self.reading.is_too_slow(rate, passed) && !is_silent).then_some(Refusal::SlowRequest)
    }

    /// Looks how its response fares; `is_stalled`: the connection sends nothing to speak of, though
    /// it has something.
    pub(crate) fn look_at_response(
        &mut self,
        now: Instant,
        window: Duration,
        is_stalled: bool,
    ) -> Option<Refusal> {
        if !self.is_held_up || !self.is_responding || self.is_free || self.verdict.is_some() {
            self.held_up_since = None;
            return None;
        }
        let held_up = now - *self.held_up_since.get_or_insert(now);
        self.verdict = (is_stalled && held_up >= window).then_some(Refusal::SlowResponse);
        self.verdict
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.verdict.is_some() && self.is_responding
    }
}
