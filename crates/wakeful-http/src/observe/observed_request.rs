//! One request, from its header to the last byte of its response, or until it is cancelled. When it
//! is dropped, its data is logged.
//!
//! The span's subscriber is the program's code. A panic in it ends neither the request nor, while
//! another panic unwinds, the process.

use std::rc::Rc;
use std::time::{Instant, SystemTime};

use bytes::Buf;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::{Body, Frame};
use tracing::Span;
use tracing::field::Empty;

use super::trace_parent::{self, TraceParent};
use super::{Head, Observer, Peer, Peers, Spans, TraceContext, request_id};
use crate::access_log::Line;
use crate::foreign_code::contain;

pub(crate) struct ObservedRequest {
    span: Span,
    observer: Rc<Observer>,
    id: Option<HeaderValue>,
    status: Option<StatusCode>,
    /// How many bytes of the body the connection has taken.
    bytes: u64,
    /// The length of the body, if it is known.
    expected: Option<u64>,
    /// Whether the response has no more to come.
    complete: bool,
    /// Whether the response has no body, whatever its headers say, because this is a HEAD request.
    is_head: bool,
    logged: Option<Logged>,
}

/// What only the access log needs.
struct Logged {
    time: SystemTime,
    begun: Instant,
    peer: Peer,
    method: Method,
    uri: Uri,
    version: Version,
    user_agent: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    trace_id: Option<u128>,
}

impl Observer {
    /// Begins a request. `None`: neither a log nor a span wants it.
    ///
    /// # Errors
    /// The program's closure has panicked instead of making a span.
    #[inline]
    pub(crate) fn begin<R>(
        self: &Rc<Self>,
        request: &mut Request<R>,
        peer: Peer,
    ) -> Result<Option<Box<ObservedRequest>>, Option<Box<ObservedRequest>>> {
        if matches!(self.settings.peers, Peers::Inserted) {
            request.extensions_mut().insert(peer);
        }
        let id = self.ids.id(self.settings.request_ids, request.headers_mut());
        let trace = self.continue_trace(request);
        let span = self.span(request, peer, id.as_ref(), trace);
        let has_panicked = span.is_none();
        let span = span.unwrap_or_else(Span::none);
        let logged = self.log.as_ref().map(|_| Logged::new(request, peer, trace));
        if id.is_none() && span.is_disabled() && logged.is_none() {
            return if has_panicked { Err(None) } else { Ok(None) };
        }
        let observed = Some(Box::new(ObservedRequest {
            span,
            observer: self.clone(),
            id,
            status: None,
            bytes: 0,
            expected: None,
            complete: false,
            is_head: *request.method() == Method::HEAD,
            logged,
        }));
        if has_panicked { Err(observed) } else { Ok(observed) }
    }

    fn continue_trace<R>(&self, request: &mut Request<R>) -> Option<TraceParent> {
        let how = self.settings.trace_context;
        if how == TraceContext::Ignore {
            return None;
        }
        let headers = request.headers_mut();
        let given = TraceParent::from_headers(headers);
        if given.is_none() {
            headers.remove(trace_parent::NAME);
            headers.remove(trace_parent::STATE);
        }
        let mut random = self.random.borrow_mut();
        let own = match given {
            Some(given) => given.child(random.u64(..)),
            None if how == TraceContext::Start => {
                TraceParent::root(random.u128(..), random.u64(..))
            }
            None => return None,
        };
        headers.insert(trace_parent::NAME, own.to_header_value());
        Some(own)
    }

    /// `None`: the program's closure has panicked.
    fn span<R>(
        &self,
        request: &Request<R>,
        peer: Peer,
        id: Option<&HeaderValue>,
        trace: Option<TraceParent>,
    ) -> Option<Span> {
        match &self.settings.spans {
            Spans::Off => Some(Span::none()),
            Spans::Made(make) => {
                let head = Head {
                    method: request.method(),
                    uri: request.uri(),
                    version: request.version(),
                    headers: request.headers(),
                    peer,
                };
                let mut span = None;
                contain(|| span = Some(make(head)));
                span
            }
            Spans::Standard => {
                let mut span = Span::none();
                contain(|| {
                    span = tracing::debug_span!(
                        target: "wakeful_http::request",
                        "request",
                        method = %request.method(),
                        path = path(request.uri()),
                        protocol = ?request.version(),
                        peer = %peer.addr,
                        request_id = id.and_then(|id| id.to_str().ok()),
                        trace_id = trace.map(|trace| format!("{:032x}", trace.trace_id())),
                        status = Empty,
                        aborted = Empty,
                    );
                });
                Some(span)
            }
        }
    }
}

impl Logged {
    fn new<R>(request: &Request<R>, peer: Peer, trace: Option<TraceParent>) -> Self {
        Self {
            time: SystemTime::now(),
            begun: Instant::now(),
            peer,
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            user_agent: request.headers().get(header::USER_AGENT).cloned(),
            referer: request.headers().get(header::REFERER).cloned(),
            trace_id: trace.map(TraceParent::trace_id),
        }
    }
}

impl ObservedRequest {
    /// Enters the span until the result is dropped.
    #[inline]
    pub(crate) fn enter(&self) -> Entered<'_> {
        if self.span.is_disabled() {
            return Entered { span: None };
        }
        let mut entered = Entered { span: None };
        contain(|| {
            self.span.with_subscriber(|(id, subscriber)| subscriber.enter(id));
            entered.span = Some(&self.span);
        });
        entered
    }

    /// Called when the service has answered.
    pub(crate) fn respond<B: Body>(&mut self, response: &mut Response<B>) {
        let status = response.status();
        self.status = Some(status);
        self.expected = response.body().size_hint().exact().or_else(|| content_length(response));
        let has_no_body = self.is_head
            || status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let is_empty = self.expected == Some(0) || response.body().is_end_stream();
        self.complete = has_no_body || is_empty;
        if let Some(id) = self.id.clone() {
            response.headers_mut().entry(request_id::NAME).or_insert(id);
        }
    }

    /// Called when the connection takes another frame of the body, or learns that there is none.
    /// Returns whether the body has ended.
    pub(crate) fn saw<D: Buf, E>(
        &mut self,
        frame: &Option<Result<Frame<D>, E>>,
        is_end: bool,
    ) -> bool {
        let (bytes, is_end) = match frame {
            // The body is over, though not complete.
            Some(Err(_)) => return true,
            // Nothing follows trailers, so the connection does not poll the body for more.
            Some(Ok(frame)) => {
                (frame.data_ref().map_or(0, Buf::remaining), is_end || frame.is_trailers())
            }
            None => (0, true),
        };
        self.bytes += bytes as u64;
        self.complete |= is_end || self.expected.is_some_and(|expected| self.bytes >= expected);
        self.complete
    }
}

/// The path, or the target of CONNECT, which has only a host and a port. (A name and a password
/// before them are left out.)
fn path(uri: &Uri) -> &str {
    match uri.authority() {
        Some(authority) if uri.path().is_empty() => {
            authority.as_str().rsplit('@').next().unwrap_or_default()
        }
        _ => uri.path(),
    }
}

/// The announced length of the body. The connection does not poll the body for more.
fn content_length<B>(response: &Response<B>) -> Option<u64> {
    response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// An entered span. tracing's own guard would abort the process if the handler panics, and then the
/// subscriber.
pub(crate) struct Entered<'a> {
    span: Option<&'a Span>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(span) = self.span {
            contain(|| {
                span.with_subscriber(|(id, subscriber)| subscriber.exit(id));
            });
        }
    }
}

impl Drop for ObservedRequest {
    fn drop(&mut self) {
        if !self.span.is_disabled() {
            // Each step is contained separately, because this may run after a panic of the handler.
            let span = std::mem::replace(&mut self.span, Span::none());
            contain(|| {
                span.record("status", self.status.map(|status| status.as_u16()));
            });
            contain(|| {
                span.record("aborted", !self.complete);
            });
            contain(|| drop(span));
        }
        let (Some(log), Some(logged)) = (&self.observer.log, &self.logged) else { return };
        log.write(&Line {
            time: logged.time,
            peer: logged.peer.addr,
            method: &logged.method,
            path: path(&logged.uri),
            query: logged.uri.query().filter(|_| log.logs_queries()),
            version: logged.version,
            status: self.status.map(|status| status.as_u16()),
            bytes: self.bytes,
            duration: logged.begun.elapsed(),
            aborted: !self.complete,
            user_agent: logged.user_agent.as_ref().map(HeaderValue::as_bytes),
            referer: logged.referer.as_ref().map(HeaderValue::as_bytes),
            request_id: self.id.as_ref().map(HeaderValue::as_bytes),
            trace_id: logged.trace_id,
        });
    }
}
