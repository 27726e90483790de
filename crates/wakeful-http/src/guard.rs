//! The service within the limits: what is refused before it is called, what is answered in its place, and what its answers say of the connection.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::Service;
use pin_project_lite::pin_project;

use crate::Refusal;
use crate::body::{Progress, RequestBody, ResponseBody};
use crate::protocol::Protocol;
use crate::requests::{InFlight, Key, Kind, status};
use crate::watch::Watch;

/// A service of one connection.
#[derive(Debug)]
pub(crate) struct Guarded<S> {
    pub(crate) service: S,
    pub(crate) watch: Rc<Watch>,
}

impl<S, B> Service<Request<Incoming>> for Guarded<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = Answer<S::Future>;

    #[inline(always)]
    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let watch = &self.watch;
        watch.local.counts().request_begins();
        let kind = kind(&request);
        if let Err(refused) = self.admit(&request) {
            watch.local.refuse(refused.refusal);
            watch.local.counts().request_ends();
            // It counts for the connection as any other.
            watch.count_request();
            return Answer::refused(refused, watch);
        }
        let is_http1 = watch.protocol == Protocol::Http1;
        let has_body = (is_http1 || kind == Kind::Plain) && !request.body().is_end_stream();
        let progress = has_body.then(Progress::default);
        if is_http1 {
            watch.last_body.replace(progress.clone());
        }
        let limited = progress.clone().filter(|_| kind == Kind::Plain);
        let is_tunnel = request.method() == Method::CONNECT;
        let most = if is_tunnel { 0 } else { watch.local.limits().max_body };
        let in_flight = InFlight::new(watch.clone(), kind, limited);
        let request = request.map(|body| RequestBody::new(body, progress, most));
        let future = self.service.call(request);
        Answer { state: State::Serving { future }, in_flight: Some(in_flight) }
    }
}

impl<S> Guarded<S> {
    /// May it be served? Then it counts as in flight on all loops.
    fn admit(&self, request: &Request<Incoming>) -> Result<(), Refused> {
        let (watch, limits) = (&self.watch, self.watch.local.limits());
        if watch.protocol == Protocol::Http1 {
            if !watch.is_framing_clear() {
                return Err(Refused::new(Refusal::AmbiguousLength));
            }
            if !has_right_host(request) {
                return Err(Refused::new(Refusal::Host));
            }
        }
        let uri = request.uri().path_and_query().map_or(0, |uri| uri.as_str().len());
        if uri > limits.max_uri {
            return Err(Refused::new(Refusal::UriTooLong));
        }
        if request.headers().len() > limits.max_headers {
            return Err(Refused::new(Refusal::HeaderTooLarge));
        }
        let is_too_large = request.body().size_hint().lower() > limits.max_body;
        if limits.max_body > 0 && request.method() != Method::CONNECT && is_too_large {
            return Err(Refused::new(Refusal::BodyTooLarge));
        }
        if let Err(wait) = watch.life.ask_peer() {
            let refused = Refused::new(Refusal::PeerRate);
            return Err(Refused {
                retry_after: Some(wait.div_ceil(1_000_000_000).max(1)),
                ..refused
            });
        }
        if !watch.local.begin_request() {
            return Err(Refused { retry_after: Some(1), ..Refused::new(Refusal::Requests) });
        }
        Ok(())
    }
}

/// RFC 9112, 3.2: one, but that HTTP/1.0 may do without.
fn has_right_host(request: &Request<Incoming>) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let has_host = hosts.next().is_some() || request.version() == Version::HTTP_10;
    has_host && hosts.next().is_none()
}

/// A stream that goes on for as long as it likes, with a deadline of its own, or an ordinary request.
fn kind(request: &Request<Incoming>) -> Kind {
    let is_grpc = || {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        content_type.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
    };
    let is_tunnel = || request.method() == Method::CONNECT;
    if is_tunnel() || is_grpc() { Kind::Free } else { Kind::Plain }
}

/// What the server answers by itself.
#[derive(Debug, Clone, Copy)]
struct Refused {
    refusal: Refusal,
    /// In seconds.
    retry_after: Option<u64>,
}

impl Refused {
    fn new(refusal: Refusal) -> Self {
        Self { refusal, retry_after: None }
    }
}

pin_project! {
    /// The response's future.
    #[derive(Debug)]
    pub(crate) struct Answer<F> {
        #[pin]
        state: State<F>,
        in_flight: Option<InFlight>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = StateProjection]
    enum State<F> {
        Serving { #[pin] future: F },
        Refused { head: Option<http::response::Parts> },
    }
}

impl<F> Answer<F> {
    fn refused(refused: Refused, watch: &Watch) -> Self {
        let head = Some(head(refused, watch));
        Self { state: State::Refused { head }, in_flight: None }
    }
}

/// The answer to what is refused; the connection goes with it if what would come of the request is not wanted.
fn head(refused: Refused, watch: &Watch) -> http::response::Parts {
    let status = status(refused.refusal);
    let (mut head, ()) = Response::new(()).into_parts();
    head.status = status;
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
    if let Some(seconds) = refused.retry_after {
        head.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    let is_of_request_only =
        matches!(refused.refusal, Refusal::PeerRate | Refusal::Requests | Refusal::UriTooLong);
    if watch.protocol == Protocol::Http1 && !is_of_request_only {
        watch.close_after(refused.refusal);
    }
    say_close(&mut head.headers, status, watch);
    watch.local.counts().response(status);
    head
}

/// The last response of a connection says so, where the protocol has it in the response.
fn say_close(headers: &mut http::HeaderMap, status: StatusCode, watch: &Watch) {
    let is_last = watch.protocol == Protocol::Http1 && watch.is_closing();
    if is_last && status != StatusCode::SWITCHING_PROTOCOLS {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

impl<F, B, E> Future for Answer<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<ResponseBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let future = match this.state.as_mut().project() {
            StateProjection::Serving { future } => future,
            StateProjection::Refused { head } => {
                let head = head.take().expect("polled after its end");
                return Poll::Ready(Ok(Response::from_parts(head, ResponseBody::empty())));
            }
        };
        let polled = future.poll(cx);
        let in_flight = this.in_flight.as_ref().expect("polled after its end");
        if let Some(refusal) = in_flight.verdict() {
            if refusal == Refusal::BodyTooLarge {
                in_flight.watch.local.refuse(refusal);
            }
            let head = head(Refused::new(refusal), &in_flight.watch);
            // The service's future goes, with the body that it may hold.
            this.state.set(State::Refused { head: None });
            *this.in_flight = None;
            return Poll::Ready(Ok(Response::from_parts(head, ResponseBody::empty())));
        }
        let mut response = ready!(polled)?;
        let status = response.status();
        in_flight.responds();
        in_flight.watch.local.counts().response(status);
        say_close(response.headers_mut(), status, &in_flight.watch);
        let in_flight = this.in_flight.take();
        Poll::Ready(Ok(response.map(|body| ResponseBody::of_service(body, in_flight))))
    }
}

/// Spawns an HTTP/2 connection's streams, each so that it ends when its limits say so.
#[derive(Debug, Clone)]
pub(crate) struct Streams(pub(crate) Rc<Watch>);

impl<F: Future<Output = ()> + 'static> Executor<F> for Streams {
    fn execute(&self, future: F) {
        match self.0.called.take() {
            // hyper calls the service, and spawns the stream that answers at once.
            Some(key) => wakeful::spawn(Stream { future, key, watch: self.0.clone() }).detach(),
            // What an upgraded stream sends: until it ends, the connection is in use.
            None => {
                let tunnel = Tunnel::open(self.0.clone());
                wakeful::spawn(async move {
                    let _tunnel = tunnel;
                    future.await;
                })
                .detach();
            }
        }
    }
}

/// A stream that was upgraded.
struct Tunnel(Rc<Watch>);

impl Tunnel {
    fn open(watch: Rc<Watch>) -> Self {
        watch.tunnels.set(watch.tunnels.get() + 1);
        Self(watch)
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.0.tunnels.set(self.0.tunnels.get() - 1);
    }
}

pin_project! {
    /// Dropped in the middle of its response, h2 resets it.
    struct Stream<F> {
        #[pin]
        future: F,
        key: Key,
        watch: Rc<Watch>,
    }
}

impl<F: Future<Output = ()>> Future for Stream<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.watch.is_aborted(*this.key) {
            return Poll::Ready(());
        }
        let polled = this.future.poll(cx);
        if polled.is_pending() {
            this.watch.wakes(*this.key, cx.waker());
        }
        polled
    }
}
