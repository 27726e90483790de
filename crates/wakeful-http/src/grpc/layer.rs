//! Replaces what tonic's transport does for a call: it enforces the deadline, and answers when the
//! handler panics. It also ends streams when the server drains.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body::Body;
use pin_project_lite::pin_project;
use tonic::Status;
use tower_layer::Layer;
use tower_service::Service;
use wakeful::time::{Timeout, now, timeout_at};

use super::shutdown::Shutdown;
use super::timeout;
use super::{CallRequestBody, CallResponseBody};
use crate::foreign_code::{contain, contain_payload};

/// Enforces deadlines (`grpc-timeout`), and ends streams when the server drains. Use it with
/// `axum::Router::layer`, or around the whole router.
///
/// * A call that is not done by its deadline ends with DEADLINE_EXCEEDED, before its response or in
///   the middle of it, and its handler is dropped. If the client does not read and its flow-control
///   window is full, the response ends only when the client reads again or its connection ends. The
///   time counts from the moment when the inner service is ready: a call that waits for the place
///   of a [`ConcurrencyLimitLayer`](crate::layers::ConcurrencyLimitLayer) directly inside has no
///   deadline yet. (axum's router is always ready.)
/// * If the handler of a call panics before its response begins, the call gets INTERNAL.
/// * When the server drains, unary calls finish. A stream may continue for
///   [`linger`](Self::linger). Its handler should await [`drain_begins`](crate::drain_begins), and
///   then end the stream. After `linger` the stream ends with UNAVAILABLE, both for the client and
///   for a handler that reads requests from it. A handler that has not begun its response, and
///   waits for something else than a request, goes on until the server's grace period is over.
///
/// A request is a call if its content type is `application/grpc`, perhaps with a codec
/// (`application/grpc+proto`). Any other request passes through, with no deadline, and is not cut
/// when the server drains. So the layer may be around REST and gRPC together. But tonic does not
/// look at the content type: a client that gives its calls another one escapes
/// [`max_deadline`](Self::max_deadline). If that matters, use
/// [`refuse_other_types`](Self::refuse_other_types) around the gRPC services alone. gRPC-Web is not
/// a call here: put the layer that translates it around this one.
///
/// The server's own time limits for requests also apply, unless
/// [`Limits::grpc_calls`](crate::Limits::grpc_calls) exempts calls.
///
/// | setting | default | range | what happens beyond it |
/// |---|---|---|---|
/// | [`max_deadline`](Self::max_deadline) | none | any | DEADLINE_EXCEEDED |
/// | [`linger`](Self::linger) | 1 s | any | UNAVAILABLE |
/// | [`refuse_other_types`](Self::refuse_other_types) | off | | 415 |
///
/// # Panics
/// Deadlines need a loop. On a thread where no loop runs, a call that has a deadline
/// (`grpc-timeout` or [`max_deadline`](Self::max_deadline)) and has to wait gets INTERNAL. The body
/// of its response panics when it has to wait.
#[derive(Debug, Clone)]
pub struct GrpcLayer {
    max_deadline: Option<Duration>,
    linger: Duration,
    is_strict: bool,
}

impl Default for GrpcLayer {
    fn default() -> Self {
        Self { max_deadline: None, linger: Duration::from_secs(1), is_strict: false }
    }
}

impl GrpcLayer {
    /// Makes a layer with the default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum deadline, counted from the call. Calls that ask for more time, or for no
    /// deadline, get this one. Streams are calls, too.
    #[must_use]
    pub fn max_deadline(mut self, deadline: Duration) -> Self {
        self.max_deadline = Some(deadline);
        self
    }

    /// Sets how long a stream may continue when the server drains. Choose a shorter time than the
    /// server's grace period ([`DrainPlan::grace`](crate::DrainPlan::grace)). Otherwise streams are
    /// cut off without a status.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }
}

impl GrpcLayer {
    /// Refuses (415) requests whose content type is not that of gRPC over HTTP/2
    /// (`application/json`, gRPC-Web, or none), instead of reading them as gRPC. Use it for a
    /// server that has only gRPC services.
    #[must_use]
    pub fn refuse_other_types(mut self) -> Self {
        self.is_strict = true;
        self
    }
}

/// Is the content type `application/grpc`, perhaps with a codec or parameters? gRPC-Web is another
/// protocol.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let Some((start, rest)) = kind.and_then(|kind| kind.split_at_checked(GRPC.len())) else {
        return false;
    };
    start.eq_ignore_ascii_case(GRPC) && matches!(rest, [] | [b'+' | b';' | b' ', ..])
}

const GRPC: &[u8] = b"application/grpc";

impl<S> Layer<S> for GrpcLayer {
    type Service = GrpcService<S>;

    fn layer(&self, inner: S) -> GrpcService<S> {
        GrpcService { inner, settings: self.clone() }
    }
}

/// The service of [`GrpcLayer`].
///
/// # Panics
/// On a thread where no loop runs, as [`GrpcLayer`] describes.
#[derive(Debug, Clone)]
pub struct GrpcService<S> {
    inner: S,
    settings: GrpcLayer,
}

impl<S> GrpcService<S> {
    /// Wraps `inner` in the default settings of [`GrpcLayer`]. `inner` is a server that tonic has
    /// generated, or `tonic::service::Routes` for several. This service and
    /// [`Server`](crate::Server) together replace `tonic::transport::Server`.
    ///
    /// ```no_run
    /// use wakeful_http::grpc::{self, GrpcService};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// // In the place of `tonic::transport::Server::builder().add_service(health).serve(addr)`.
    /// let (_reporter, health) = grpc::health_reporter();
    /// wakeful_http::Server::bind("127.0.0.1:50051")?.serve(GrpcService::new(health))
    /// # }
    /// ```
    #[must_use]
    pub fn new(inner: S) -> Self {
        GrpcLayer::new().layer(inner)
    }
}

impl<S, B, R> Service<Request<B>> for GrpcService<S>
where
    S: Service<Request<CallRequestBody<B>>, Response = Response<R>>,
    R: Body,
{
    type Response = Response<CallResponseBody<R>>;
    type Error = S::Error;
    type Future = CallFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let GrpcLayer { max_deadline, linger, is_strict } = self.settings;
        let is_call = is_grpc(request.headers());
        if !is_call {
            let phase = if is_strict {
                Phase::OtherType
            } else {
                let request = request.map(|body| CallRequestBody::new(body, Shutdown::never()));
                Phase::Free { inner: self.inner.call(request) }
            };
            return CallFuture { phase, deadline: None, linger, is_call };
        }
        let asked = match timeout::of(request.headers()) {
            Ok(asked) => asked,
            Err(status) => {
                return CallFuture {
                    phase: Phase::Refused { status: Some(status) },
                    deadline: None,
                    linger,
                    is_call,
                };
            }
        };
        let granted = asked.into_iter().chain(max_deadline).min();
        // A deadline that the clock cannot represent is no deadline.
        let deadline = granted.and_then(|granted| now().checked_add(granted));
        let request = request.map(|body| CallRequestBody::new(body, Shutdown::after(linger)));
        let phase = match (caught(is_call, || self.inner.call(request)), deadline) {
            (Some(inner), Some(deadline)) => Phase::Timed { inner: timeout_at(deadline, inner) },
            (Some(inner), None) => Phase::Free { inner },
            (None, _) => Phase::Refused { status: Some(panicked()) },
        };
        CallFuture { phase, deadline, linger, is_call }
    }
}

pin_project! {
    /// The future of [`GrpcService`].
    #[derive(Debug)]
    pub struct CallFuture<F> {
        #[pin]
        phase: Phase<F>,
        deadline: Option<Instant>,
        linger: Duration,
        is_call: bool,
    }
}

pin_project! {
    #[project = PhaseProjection]
    #[derive(Debug)]
    enum Phase<F> {
        Free { #[pin] inner: F },
        Timed { #[pin] inner: Timeout<F> },
        Refused { status: Option<Status> },
        OtherType,
    }
}

impl<F, R, E> Future for CallFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Result<Response<CallResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let (deadline, linger) = (*this.deadline, *this.linger);
        let is_call = *this.is_call;
        let polled = match this.phase.as_mut().project() {
            PhaseProjection::Free { inner } => caught(is_call, || inner.poll(cx).map(Ok)),
            PhaseProjection::Timed { inner } => caught(is_call, || {
                inner.poll(cx).map(|in_time| in_time.map_err(|_| deadline_exceeded()))
            }),
            PhaseProjection::OtherType => {
                let mut response = Response::new(CallResponseBody::empty());
                *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
                return Poll::Ready(Ok(response));
            }
            PhaseProjection::Refused { status } => {
                Some(Poll::Ready(Err(status.take().expect("not polled after its end"))))
            }
        };
        let answered = polled.unwrap_or_else(|| {
            // The handler's future may panic in its drop, too.
            contain(|| this.phase.set(Phase::Refused { status: None }));
            Poll::Ready(Err(panicked()))
        });
        let shutdown = || if is_call { Shutdown::after(linger) } else { Shutdown::never() };
        answered.map(|answered| match answered {
            Ok(response) => response.map(|response| {
                response.map(|body| CallResponseBody::new(body, deadline, shutdown()))
            }),
            Err(status) => Ok(status.into_http::<()>().map(|()| CallResponseBody::empty())),
        })
    }
}

/// Calls `f`. `None`: it panicked for a call. The server answers a panic for any other request.
fn caught<T>(is_call: bool, f: impl FnOnce() -> T) -> Option<T> {
    if !is_call {
        return Some(f());
    }
    catch_unwind(AssertUnwindSafe(f)).map_err(contain_payload).ok()
}

fn panicked() -> Status {
    Status::internal("the handler panicked")
}

pub(super) fn deadline_exceeded() -> Status {
    Status::deadline_exceeded("the deadline has passed")
}
