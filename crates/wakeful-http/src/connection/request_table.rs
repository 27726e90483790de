//! The requests of one connection that are in flight.
//!
//! HTTP/1 has one request at a time, HTTP/2 one for each stream. A request leaves the table when
//! its response's body is gone. With HTTP/2 each request is answered by a separate task, which is
//! woken when a limit decides about the request, and when the connection is gone.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::{Duration, Instant};

use http::{Method, Uri};
use slab::Slab;
use wakeful::heartbeat::working_on;

use super::protocol::Protocol;
use super::request_limits::{Begun, Key, Request};
use super::request_names::RequestNames;
use super::tunnels::{Check, Tunnels};
use crate::counts::Refusal;
use crate::foreign_code;
use crate::upgrade::StreamLink;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct RequestTable {
    requests: RefCell<Slab<Request>>,
    /// The names of the requests, for the report of a slow turn.
    names: RequestNames,
    /// The request that the service was last called with, until its stream's task is spawned.
    called: Cell<Option<Key>>,
    /// The request that may use what is kept for the connection. Others in flight are further ones.
    first: Cell<Option<Key>>,
    /// The last request that was removed, unless it has no limits of time. With HTTP/1 its response
    /// may still be written.
    last: Cell<Option<Begun>>,
    /// With HTTP/2: the request whose stream was polled last.
    answering: Cell<Option<Key>>,
    /// With HTTP/2: the upgrade that the last request with a response had asked for.
    switching: RefCell<Option<StreamLink>>,
    /// With HTTP/2: the upgraded streams.
    tunnels: Tunnels,
    /// With HTTP/2: whether the connection is gone.
    is_gone: Cell<bool>,
}

impl RequestTable {
    pub(super) fn new(protocol: Protocol) -> Self {
        // HTTP/1 has one request at a time, and a slab allocates room for four unless it is told
        // otherwise.
        let requests = match protocol {
            Protocol::Http1 => Slab::with_capacity(1),
            Protocol::Http2 => Slab::new(),
        };
        Self {
            requests: RefCell::new(requests),
            names: RequestNames::default(),
            called: Cell::new(None),
            first: Cell::new(None),
            last: Cell::new(None),
            answering: Cell::new(None),
            switching: RefCell::new(None),
            tunnels: Tunnels::default(),
            is_gone: Cell::new(false),
        }
    }

    /// Adds a request, which is in flight until it is [removed](Self::remove).
    pub(crate) fn insert(&self, request: Request, method: &Method, uri: &Uri) -> Key {
        let number = request.number;
        let place = self.requests.borrow_mut().insert(request);
        let key = Key { place, number };
        self.called.set(Some(key));
        if self.first.get().is_none() && !self.tunnels.has_first() {
            self.first.set(Some(key));
        }
        self.names.set(place, method, uri);
        key
    }

    /// Returns the refusal that cut its response off, if nothing has counted that yet.
    pub(crate) fn remove(&self, key: Key) -> Option<Refusal> {
        let request = self.requests.borrow_mut().try_remove(key.place);
        if !self.is_further(key) {
            self.first.set(None);
        }
        self.last.set(request.as_ref().and_then(Request::begun));
        request.as_ref().and_then(Request::uncounted)
    }

    /// Returns whether the last request has begun longer ago than a request may take. The time in
    /// which the process was `stopped` does not count.
    pub(super) fn is_last_late(
        &self,
        most: Option<Duration>,
        now: Instant,
        stopped: Duration,
    ) -> bool {
        let (Some(most), Some(mut last)) = (most, self.last.get()) else { return false };
        let ago = last.ago(now, stopped);
        self.last.set(Some(last));
        ago >= most
    }

    /// Returns whether another request of the connection came before, and is still in flight.
    #[inline]
    pub(crate) fn is_further(&self, key: Key) -> bool {
        self.first.get() != Some(key)
    }

    /// Calls `use_it` with a request that is in flight.
    ///
    /// # Panics
    /// If the request is not in flight.
    pub(crate) fn with<R>(&self, key: Key, use_it: impl FnOnce(&mut Request) -> R) -> R {
        use_it(&mut self.requests.borrow_mut()[key.place])
    }

    /// Calls `use_it` with each request that is in flight.
    pub(super) fn for_each(&self, mut use_it: impl FnMut(&mut Request)) {
        self.requests.borrow_mut().iter_mut().for_each(|(_, request)| use_it(request));
    }

    /// Returns whether a request or an upgraded stream is in flight.
    pub(crate) fn is_in_flight(&self) -> bool {
        !self.tunnels.is_empty() || !self.requests.borrow().is_empty()
    }

    /// Returns whether the response of a request in flight has begun.
    pub(super) fn is_responding(&self) -> bool {
        self.requests.borrow().iter().any(|(_, request)| request.is_responding())
    }

    /// Tells the supervising process, if there is one, that the running poll works on this request.
    #[inline]
    pub(crate) fn working_on(&self, key: Key) {
        // One task polls the requests of only one connection, so the number identifies the request.
        working_on(key.number, |text| self.names.describe(key.place, text));
    }

    /// Returns the name of a request for the report of a slow turn.
    pub(crate) fn name(&self, key: Key) -> String {
        self.names.get(key.place)
    }

    /// Returns the request that the service was called with since the last call of this method.
    pub(crate) fn take_called(&self) -> Option<Key> {
        self.called.take()
    }

    /// Notes that the stream of a request is polled.
    pub(crate) fn answers(&self, key: Key) {
        self.answering.set(Some(key));
    }

    /// Notes that the response of a request begins. hyper takes it next.
    pub(crate) fn responds(&self, key: Key) {
        let stream = self.with(key, Request::responds);
        drop(self.switching.replace(stream));
    }

    /// Counts one more upgraded stream as in flight, and returns its place. Its request's stream is
    /// being polled, and has just got its response. If that request may use what is kept for the
    /// connection, the upgraded stream may.
    pub(crate) fn tunnel_opens(&self) -> (usize, StreamLink) {
        let link = self.switching.take().unwrap_or_default();
        let key = self.answering.get();
        let is_first = key.is_some_and(|key| !self.is_further(key));
        let request = key.map_or(u64::MAX, |key| key.number);
        (self.tunnels.add(request, is_first, link.clone()), link)
    }

    pub(crate) fn tunnel_closes(&self, place: usize) {
        self.tunnels.remove(place);
    }

    /// Returns the upgraded streams that their users have dropped, and of which the client takes
    /// the rest too slowly. Each is returned once.
    pub(super) fn take_slow_tunnels(
        &self,
        check: Check,
        sent_without_room: impl Fn(u64) -> Option<u64>,
    ) -> Vec<StreamLink> {
        self.tunnels.take_slow(check, sent_without_room)
    }

    /// Ends the upgraded streams, because a panic has ended the connection, and h2 does not.
    pub(crate) fn lose_tunnels(&self) {
        self.tunnels.all().iter().for_each(StreamLink::loses_connection);
    }

    /// Returns whether the task that answers a request must end, although the response has begun.
    pub(crate) fn is_aborted(&self, key: Key) -> bool {
        if self.is_gone.get() {
            return true;
        }
        let requests = self.requests.borrow();
        let request = requests.get(key.place).filter(|request| request.number == key.number);
        request.is_some_and(Request::is_aborted)
    }

    /// Aborts all requests, because the connection and its streams are gone.
    pub(crate) fn abort_all(&self) {
        self.is_gone.set(true);
        let wakers: Vec<_> = {
            let mut requests = self.requests.borrow_mut();
            requests.iter_mut().filter_map(|(_, request)| request.waker.take()).collect()
        };
        wakers.into_iter().for_each(foreign_code::wake);
    }

    /// Wakes `waker` when something is decided about a request.
    pub(crate) fn wake_when_decided(&self, key: Key, waker: &Waker) {
        let is_known = |request: &Request| {
            let known = request.waker.as_ref();
            known.is_some_and(|known| known.will_wake(waker))
        };
        if self.requests.borrow().get(key.place).is_none_or(is_known) {
            return;
        }
        // The clone and the drop of a waker may run user code, so nothing is borrowed meanwhile.
        let waker = waker.clone();
        let mut requests = self.requests.borrow_mut();
        let request = requests.get_mut(key.place).filter(|request| request.number == key.number);
        let old = match request {
            Some(request) => request.waker.replace(waker),
            None => Some(waker),
        };
        drop(requests);
        foreign_code::discard(old);
    }
}

#[cfg(test)]
mod tests {
    use super::super::request_limits::TimeLimits;
    use super::*;

    fn begin(table: &RequestTable, number: u64) -> Key {
        let request = Request::new(number, TimeLimits::Apply, None);
        table.insert(request, &Method::GET, &Uri::from_static("/"))
    }

    #[test]
    fn one_request_at_a_time_or_its_tunnel_uses_what_is_kept_for_the_connection() {
        let table = RequestTable::new(Protocol::Http2);
        let (first, second) = (begin(&table, 1), begin(&table, 2));
        assert!(!table.is_further(first) && table.is_further(second));
        // The tunnel of a further request uses nothing of it.
        table.answers(second);
        let (further, _) = table.tunnel_opens();
        table.remove(second);
        table.remove(first);
        let third = begin(&table, 3);
        assert!(!table.is_further(third));
        table.answers(third);
        let (of_first, _) = table.tunnel_opens();
        table.remove(third);
        let fourth = begin(&table, 4);
        assert!(table.is_further(fourth));
        table.tunnel_closes(further);
        assert!(table.is_further(begin(&table, 5)));
        table.tunnel_closes(of_first);
        assert!(!table.is_further(begin(&table, 6)));
        assert!(table.is_further(fourth), "it stays what it was");
    }
}
