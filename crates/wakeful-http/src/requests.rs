//! A request in flight: from its header to its response's end, and what its limits make of it.

use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use http::{Method, Uri};
use wakeful::metrics::name_slow_work;

use crate::body::Progress;
use crate::panics;
use crate::protocol::Protocol;
use crate::watch::{Waiting, Watch};
use crate::{Limits, Refusal};

/// A request among those of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    place: usize,
    /// Places are used again.
    number: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Request {
    number: u64,
    /// `None`: nothing comes of it that is limited.
    body: Option<Progress>,
    reading: Waiting,
    /// When its body's silence began.
    silent_since: Option<Instant>,
    /// When it was seen first.
    begun: Option<Instant>,
    /// Its deadline is its own.
    is_free: bool,
    is_responding: bool,
    /// Of HTTP/2: the service has more to say, or is not asked, because the client gives no room; and since when that was seen.
    is_held_up: bool,
    held_up_since: Option<Instant>,
    verdict: Option<Refusal>,
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

    /// Looks how its response fares; `is_stalled`: the connection sends nothing to speak of, though it has something.
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

/// What a request holds as long as it is in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) watch: Rc<Watch>,
    pub(crate) key: Key,
}

impl InFlight {
    pub(crate) fn new(
        watch: Rc<Watch>,
        method: &Method,
        uri: &Uri,
        kind: Kind,
        body: Option<Progress>,
    ) -> Self {
        let number = watch.count_request();
        let request = Request {
            number,
            body,
            reading: Waiting::default(),
            silent_since: None,
            begun: None,
            is_free: kind == Kind::Free,
            is_responding: false,
            is_held_up: true,
            held_up_since: None,
            verdict: None,
            waker: None,
        };
        let place = watch.requests.borrow_mut().insert(request);
        let key = Key { place, number };
        watch.called.set(Some(key));
        watch.names.set(place, method, uri);
        Self { watch, key }
    }

    fn with<R>(&self, use_it: impl FnOnce(&mut Request) -> R) -> R {
        use_it(&mut self.watch.requests.borrow_mut()[self.key.place])
    }

    /// What to answer instead of what the service would.
    pub(crate) fn verdict(&self) -> Option<Refusal> {
        self.with(|request| {
            let is_too_large = request.body.as_ref().is_some_and(Progress::is_too_large);
            request.verdict.or(is_too_large.then_some(Refusal::BodyTooLarge))
        })
    }

    /// The service was called or polled for it, or its response's body was.
    #[inline]
    pub(crate) fn worked(&self) {
        name_slow_work(|| self.watch.names.get(self.key.place));
    }

    /// Its response's body was asked for more. Who has some is asked again as soon as there is room for that.
    pub(crate) fn asked(&self, has_some: bool) {
        if self.watch.protocol == Protocol::Http2 {
            self.with(|request| request.is_held_up = has_some);
        }
    }

    /// Its response begins.
    pub(crate) fn responds(&self) {
        self.with(|request| request.is_responding = true);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let request = self.watch.requests.borrow_mut().try_remove(self.key.place);
        drop(request);
        self.watch.local.end_request();
        self.watch.local.counts().request_ends();
    }
}

impl Watch {
    /// Is the request to end though its response has begun?
    pub(crate) fn is_aborted(&self, key: Key) -> bool {
        let requests = self.requests.borrow();
        let request = requests.get(key.place).filter(|request| request.number == key.number);
        request.is_some_and(Request::is_aborted)
    }

    /// The connection is gone, and with it the streams that its requests would be answered on.
    pub(crate) fn is_gone(&self) {
        self.gone.set(true);
        let wakers: Vec<_> = {
            let mut requests = self.requests.borrow_mut();
            requests.iter_mut().filter_map(|(_, request)| request.waker.take()).collect()
        };
        wakers.into_iter().for_each(panics::wake);
    }

    /// Who is woken when something is decided about the request.
    pub(crate) fn wakes(&self, key: Key, waker: &Waker) {
        let is_known = |request: &Request| {
            let known = request.waker.as_ref();
            known.is_some_and(|known| known.will_wake(waker))
        };
        if self.requests.borrow().get(key.place).is_none_or(is_known) {
            return;
        }
        // A waker's clone and drop may be anybody's code: nothing is borrowed meanwhile.
        let waker = waker.clone();
        let mut requests = self.requests.borrow_mut();
        let request = requests.get_mut(key.place).filter(|request| request.number == key.number);
        let old = match request {
            Some(request) => request.waker.replace(waker),
            None => Some(waker),
        };
        drop(requests);
        panics::discard(old);
    }
}
