//! What a server records about its requests: access log, request ids, trace context, `tracing`
//! spans.
//!
//! By default the server makes only a span for each request, at debug level. If no `tracing`
//! subscriber enables it, the span costs one read of a static variable. Each other feature costs an
//! allocation for each request. The access log also writes a line into a buffer.

// `observed_request` is one request from its header to the last byte of its response, `request_id`
// and `trace_parent` read and write the headers.

mod observed_request;
mod request_id;
mod trace_parent;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderMap, Method, Uri, Version};
use tracing::Span;

use crate::access_log::{AccessLog, LoopLog};

pub use crate::peer::Peer;
pub(crate) use observed_request::ObservedRequest;
pub use request_id::RequestIds;
pub use trace_parent::TraceParent;

/// What a server records about its requests, for [`Server::observe`](crate::Server::observe).
///
/// | setting | default | what it records |
/// |---|---|---|
/// | [`access_log`](Self::access_log) | none | a line for each request |
/// | [`request_ids`](Self::request_ids) | [`RequestIds::Off`] | `x-request-id` of requests and responses |
/// | [`trace_context`](Self::trace_context) | [`TraceContext::Ignore`] | W3C `traceparent` |
/// | [`span`](Self::span), [`no_span`](Self::no_span) | `request`, at debug level | a `tracing` span around each request |
/// | [`insert_peer`](Self::insert_peer) | not inserted | [`Peer`] also among the request's extensions |
///
/// The span's target is `wakeful_http::request`, and its fields are `method`, `path`, `protocol`,
/// `peer`, `request_id`, `trace_id`, and at the end `status` and `aborted`. It is entered whenever
/// the service or the response's body is polled.
#[derive(Clone, Default)]
pub struct Observe {
    access_log: Option<AccessLog>,
    request_ids: RequestIds,
    trace_context: TraceContext,
    spans: Spans,
    peers: Peers,
}

type MakeSpan = Arc<dyn Fn(Head<'_>) -> Span + Send + Sync>;

#[derive(Clone, Default)]
enum Spans {
    #[default]
    Standard,
    Made(MakeSpan),
    Off,
}

#[derive(Debug, Clone, Copy, Default)]
enum Peers {
    #[default]
    Omitted,
    Inserted,
}

/// What happens to a request's `traceparent` (W3C Trace Context).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TraceContext {
    /// Nothing: the server neither reads nor changes it.
    #[default]
    Ignore,
    /// A valid header continues its trace: the handler sees the header with this request as the new
    /// parent, and may send it with its own requests. An invalid header is removed, together with
    /// `tracestate`.
    Continue,
    /// Like `Continue`, but a request without a valid header begins a new trace, which is not
    /// sampled.
    Start,
}

/// A request without its body, as the function of [`Observe::span`] gets it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// The request's target. With HTTP/1 it usually has only a path and a query.
    pub uri: &'a Uri,
    /// The protocol's version.
    pub version: Version,
    /// The header, with the request's `x-request-id` and the continued `traceparent`.
    pub headers: &'a HeaderMap,
    /// The sender.
    pub peer: Peer,
}

impl Observe {
    /// Returns the default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the access log.
    #[must_use]
    pub fn access_log(mut self, log: AccessLog) -> Self {
        self.access_log = Some(log);
        self
    }

    /// Sets where requests get their ids from. The id appears as `x-request-id` in the request's
    /// header (for handlers) and in the response's header (unless the handler has set one there),
    /// in the access log, and in the span.
    #[must_use]
    pub fn request_ids(mut self, from: RequestIds) -> Self {
        self.request_ids = from;
        self
    }

    /// Sets what happens to `traceparent`. The trace id appears in the access log and in the span.
    #[must_use]
    pub fn trace_context(mut self, context: TraceContext) -> Self {
        self.trace_context = context;
        self
    }

    /// Sets the function that makes each request's span, instead of the standard one. It may set
    /// the span's parent (the example `opentelemetry` takes the parent from `traceparent`). If the
    /// span has the fields `status` and `aborted`, the server records them at the end of the
    /// request.
    #[must_use]
    pub fn span<F>(mut self, make: F) -> Self
    where
        F: Fn(Head<'_>) -> Span + Send + Sync + 'static,
    {
        self.spans = Spans::Made(Arc::new(make));
        self
    }

    /// Disables the span of requests, even if a subscriber wants it.
    #[must_use]
    pub fn no_span(mut self) -> Self {
        self.spans = Spans::Off;
        self
    }

    /// Puts a [`Peer`] into the extensions of each request. This is for layers that run a request's
    /// handler in a separate task or on another thread, where [`Peer::current`] finds no peer. It
    /// costs each request up to three allocations.
    #[must_use]
    pub fn insert_peer(mut self) -> Self {
        self.peers = Peers::Inserted;
        self
    }

    /// Makes the observer of the loop on this thread.
    pub(crate) fn on_this_loop(&self) -> Rc<Observer> {
        Rc::new(Observer {
            log: self.access_log.as_ref().map(AccessLog::on_this_loop),
            ids: request_id::Maker::new(),
            random: RefCell::new(fastrand::Rng::with_seed(request_id::random())),
            settings: self.clone(),
        })
    }
}

impl fmt::Debug for Observe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observe")
            .field("access_log", &self.access_log)
            .field("request_ids", &self.request_ids)
            .field("trace_context", &self.trace_context)
            .field("peers", &self.peers)
            .finish_non_exhaustive()
    }
}

/// The observer of one loop.
pub(crate) struct Observer {
    settings: Observe,
    log: Option<Rc<LoopLog>>,
    ids: request_id::Maker,
    /// Generates the ids of spans and traces.
    random: RefCell<fastrand::Rng>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("settings", &self.settings).finish_non_exhaustive()
    }
}
