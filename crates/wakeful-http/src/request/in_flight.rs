//! What a request holds as long as it is in flight.

use std::rc::Rc;

use http::{Method, Uri};
use wakeful::metrics::name_slow_work;

use crate::connection::{ConnectionState, Key, Progress, Protocol, Request, TimeLimits};
use crate::counts::Refusal;
use crate::upgrade::StreamLink;

/// A request in flight, from where the service is called to the end of its response.
///
/// When this is dropped, the request leaves the connection's table, and its place in `max_requests`
/// is free.
#[derive(Debug)]
pub(crate) struct InFlight {
    connection: Rc<ConnectionState>,
    key: Key,
}

impl InFlight {
    pub(crate) fn new(
        connection: Rc<ConnectionState>,
        method: &Method,
        uri: &Uri,
        time_limits: TimeLimits,
        body: Option<Progress>,
    ) -> Self {
        let request = Request::new(connection.count_request(), time_limits, body);
        let key = connection.requests().insert(request, method, uri);
        Self { connection, key }
    }

    /// The refusal to answer with, instead of the service's answer.
    pub(crate) fn verdict(&self) -> Option<Refusal> {
        self.with(|request| request.verdict())
    }

    /// Called before the service is called or polled for the request, or its response's body is
    /// polled.
    #[inline]
    pub(crate) fn working(&self) {
        self.connection.requests().working_on(self.key);
    }

    /// Called after the service was called or polled for the request, or its response's body was
    /// polled.
    #[inline]
    pub(crate) fn worked(&self) {
        name_slow_work(|| self.connection.requests().name(self.key));
    }

    /// Called after the response's body was polled. `has_some`: it had data.
    pub(crate) fn asked(&self, has_some: bool) {
        if self.is_http2() {
            self.with(|request| request.asked(has_some));
        }
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.connection.protocol() == Protocol::Http2
    }

    /// Called when the response begins.
    pub(crate) fn responds(&self) {
        self.connection.requests().responds(self.key);
    }

    /// Called if the request asks for an upgrade of its HTTP/2 stream.
    pub(crate) fn asks_for(&self, stream: StreamLink) {
        self.with(|request| request.asks_for(stream));
    }

    /// Whether its connection has another request in flight that came before.
    pub(crate) fn is_further(&self) -> bool {
        self.connection.requests().is_further(self.key)
    }

    pub(crate) fn connection(&self) -> &ConnectionState {
        &self.connection
    }

    fn with<R>(&self, use_it: impl FnOnce(&mut Request) -> R) -> R {
        self.connection.requests().with(self.key, use_it)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let refusal = self.connection.requests().remove(self.key);
        let loop_state = self.connection.loop_state();
        if let Some(refusal) = refusal {
            loop_state.refuse(refusal);
        }
        loop_state.end_request();
        loop_state.counts().request_ends();
    }
}
