//! A request in flight, from its header to its response's end, and its limits.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::body_progress::Progress;
use super::shut_window::ShutWindow;
use crate::counts::Refusal;
use crate::limits::rate_meter::RateMeter;
use crate::limits::{Limits, MinRate};
use crate::upgrade::StreamLink;

/// Identifies a request among those of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(super) place: usize,
    /// Distinguishes requests with the same place, because places are used again.
    pub(super) number: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Request {
    pub(super) number: u64,
    /// `None`: the request has no body that is limited.
    body: Option<Progress>,
    reading: RateMeter,
    /// When the body's present silence began.
    silent_since: Option<Instant>,
    /// When the first check saw the request.
    begun: Option<Instant>,
    time_limits: TimeLimits,
    is_responding: bool,
    /// With HTTP/2: whether the response's body has more to send, but cannot, because the client
    /// gives no room; and since when checks have seen that.
    is_held_up: bool,
    held_up_since: Option<Instant>,
    /// For how long there was no room in the response's own window.
    shut_window: ShutWindow,
    verdict: Option<Refusal>,
    pub(super) waker: Option<Waker>,
    /// With HTTP/2: the upgrade that it asks for.
    stream: Option<StreamLink>,
}

/// Whether the limits of time apply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeLimits {
    /// They apply.
    Apply,
    /// They do not apply, because the stream has its own time limits: gRPC, or a tunnel.
    Exempt,
}

/// When the first check saw a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun(Option<Instant>);

impl Begun {
    /// Returns how long ago that was, without the time in which the process was `stopped`.
    pub(super) fn ago(&mut self, now: Instant, stopped: Duration) -> Duration {
        let begun = self.0.map_or(now, |begun| begun + stopped);
        self.0 = Some(begun);
        now.saturating_duration_since(begun)
    }
}

impl Request {
    /// A request whose service is called next. `number` is its number on its connection.
    pub(crate) fn new(number: u64, time_limits: TimeLimits, body: Option<Progress>) -> Self {
        Self {
            number,
            body,
            reading: RateMeter::default(),
            silent_since: None,
            begun: None,
            time_limits,
            is_responding: false,
            is_held_up: true,
            held_up_since: None,
            shut_window: ShutWindow::default(),
            verdict: None,
            waker: None,
            stream: None,
        }
    }

    /// Returns the refusal to answer with, instead of the service's answer.
    pub(crate) fn verdict(&self) -> Option<Refusal> {
        let is_too_large = self.body.as_ref().is_some_and(Progress::is_too_large);
        self.verdict.or(is_too_large.then_some(Refusal::BodyTooLarge))
    }

    /// Returns the refusal that nothing else counts: the body was too large, which was found out
    /// after the response had begun.
    pub(super) fn uncounted(&self) -> Option<Refusal> {
        if self.is_responding && self.verdict.is_none() { self.verdict() } else { None }
    }

    /// Notes that it asks for an upgrade of its HTTP/2 stream.
    pub(crate) fn asks_for(&mut self, stream: StreamLink) {
        self.stream = Some(stream);
    }

    /// Notes that its response begins. Returns what it has asked for.
    pub(super) fn responds(&mut self) -> Option<StreamLink> {
        self.is_responding = true;
        self.stream.take()
    }

    pub(super) fn is_responding(&self) -> bool {
        self.is_responding
    }

    /// With HTTP/2: notes that the response's body was polled for more, and whether it had some. If
    /// so, it is polled again as soon as there is room.
    pub(crate) fn asked(&mut self, has_some: bool) {
        self.is_held_up = has_some;
    }

    /// Does not count the time in which the process was stopped.
    pub(super) fn spare(&mut self, stopped: Duration) {
        if !stopped.is_zero() {
            let since = [&mut self.begun, &mut self.silent_since, &mut self.held_up_since];
            since.into_iter().flatten().for_each(|since| *since += stopped);
        }
    }

    /// Checks the request, `passed` after the last check. A refusal that it returns is new.
    pub(super) fn look(
        &mut self,
        limits: &Limits,
        now: Instant,
        passed: Duration,
    ) -> Option<Refusal> {
        let begun = *self.begun.get_or_insert(now);
        if self.is_exempt() || self.verdict.is_some() {
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
        if !is_waiting || received != self.reading.bytes() {
            self.silent_since = None;
        }
        self.reading.set(received);
        self.reading.wait(is_waiting);
        let silent = now - *self.silent_since.get_or_insert(now);
        if limits.body_timeout.is_some_and(|most| is_waiting && silent >= most) {
            return Some(Refusal::BodyTimeout);
        }
        // A client that sends nothing at all is handled by the timeout, if there is one.
        let is_silent = limits.body_timeout.is_some() && self.reading.is_silent();
        let rate = limits.min_rate?;
        (self.reading.is_too_slow(rate, passed) && !is_silent).then_some(Refusal::SlowRequest)
    }

    /// Checks how the response proceeds. `is_stalled`: the connection sends almost nothing, though
    /// it has something to send.
    pub(super) fn look_at_response(
        &mut self,
        now: Instant,
        window: Duration,
        is_stalled: bool,
    ) -> Option<Refusal> {
        if !self.waits_for_room() {
            self.held_up_since = None;
            return None;
        }
        let held_up = now - *self.held_up_since.get_or_insert(now);
        self.verdict = (is_stalled && held_up >= window).then_some(Refusal::SlowResponse);
        self.verdict
    }

    /// With HTTP/2: checks how the response proceeds by its own window, `passed` after the last
    /// check. `sent_without_room`: the client gives it no room, and so much was sent.
    pub(super) fn look_at_window(
        &mut self,
        passed: Duration,
        rate: MinRate,
        sent_without_room: impl FnOnce(u64) -> Option<u64>,
    ) -> Option<Refusal> {
        let sent = if self.waits_for_room() { sent_without_room(self.number) } else { None };
        let Some(sent) = sent else {
            self.shut_window.is_open();
            return None;
        };
        let is_too_slow = self.shut_window.is_too_slow(rate, passed, sent);
        self.verdict = is_too_slow.then_some(Refusal::SlowResponse);
        self.verdict
    }

    /// Does the response have something to send that the client gives no room for, and do the
    /// limits apply?
    fn waits_for_room(&self) -> bool {
        self.is_held_up && self.is_responding && !self.is_exempt() && self.verdict.is_none()
    }

    /// When it began, if it was seen by a check. `None`: it is exempt.
    pub(super) fn begun(&self) -> Option<Begun> {
        (!self.is_exempt()).then_some(Begun(self.begun))
    }

    /// Does the request have its own deadline, so that the limits do not apply?
    fn is_exempt(&self) -> bool {
        self.time_limits == TimeLimits::Exempt
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.verdict.is_some() && self.is_responding
    }
}
