//! The service of one connection that hyper calls. It offers an upgrade, observes the request,
//! enforces the limits, and then calls the user's service.
//!
//! There is one wrapper, one future and one body for all of this, because each additional layer
//! would copy every request and every response once more. The steps are implemented in `upgrade`,
//! `observe`, `admission` and `in_flight`.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Extensions, Method, Request, Response, StatusCode, Version, header};
use http_body::Body;
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper::service::Service;
use pin_project_lite::pin_project;
use wakeful::log::OncePerSecond;

use super::admission;
use super::body::{RequestBody, ResponseBody};
use super::close_header::say_close;
use super::in_flight::InFlight;
use super::kept_panic;
use super::refused::{self, Refused};
use super::unread;
use crate::connection::{ConnectionState, Progress, Protocol, TimeLimits};
use crate::counts::Refusal;
use crate::error::BoxError;
use crate::foreign_code::{self, Contained, contain};
use crate::foreign_error;
use crate::length_header;
use crate::observe::{ObservedRequest, Observer};
use crate::own_values;
use crate::peer;
use crate::upgrade::{self, Offered, Offers};

/// See the module's documentation.
pub(crate) struct ConnectionService<S> {
    /// The service may be dropped together with a body, whose drop may panic, too.
    service: Rc<Contained<S>>,
    connection: Rc<ConnectionState>,
    observer: Rc<Observer>,
    /// For HTTP/1 only, because HTTP/2 uses hyper's own upgrades.
    offers: Option<Rc<Offers>>,
}

impl<S> ConnectionService<S> {
    pub(crate) fn new(service: S, connection: Rc<ConnectionState>) -> Self {
        let observer = connection.loop_state().observer().clone();
        let offers = (connection.protocol() == Protocol::Http1).then(Rc::default);
        let service = Rc::new(Contained::new(service));
        Self { service, connection, observer, offers }
    }

    /// The upgrades that this connection's requests were offered, with HTTP/1.
    pub(crate) fn offers(&self) -> Option<Rc<Offers>> {
        self.offers.clone()
    }

    #[cold]
    fn refused<F: Future>(
        &self,
        refused: Refused,
        request: &Request<Incoming>,
        observed: Option<Box<ObservedRequest>>,
        offered: Option<Offered>,
    ) -> Answer<S, F> {
        let connection = &self.connection;
        connection.loop_state().refuse(refused.refusal);
        connection.loop_state().counts().request_ends();
        self.answered(request, || refused::head(refused, connection), observed, offered)
    }

    /// The answer if the making of a request's span panicked.
    #[cold]
    fn panicked<F: Future>(
        &self,
        request: &Request<Incoming>,
        observed: Option<Box<ObservedRequest>>,
        offered: Option<Offered>,
    ) -> Answer<S, F> {
        let counts = self.connection.loop_state().counts();
        counts.request_begins();
        counts.request_ends();
        self.answered(request, || refused::head_of_panic(&self.connection), observed, offered)
    }

    /// An answer without the user's service.
    fn answered<F: Future>(
        &self,
        request: &Request<Incoming>,
        head: impl FnOnce() -> http::response::Parts,
        observed: Option<Box<ObservedRequest>>,
        offered: Option<Offered>,
    ) -> Answer<S, F> {
        // The request counts for the connection like any other, and may be its last one.
        self.connection.count_request();
        let has_body = self.offers.is_some() && !request.body().is_end_stream();
        if self.offers.is_some() {
            self.connection.last_body().begin_refused(has_body);
        }
        let unread = has_body.then(|| self.connection.clone());
        let state = State::Refused { head: Some(head()), unread };
        Answer { state, held: None, in_flight: None, observed, offered, is_head: false }
    }
}

impl<S, B> Service<Request<Incoming>> for ConnectionService<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body<Error: Into<BoxError>>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = BoxError;
    type Future = Answer<S, S::Future>;

    #[inline(always)]
    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let protocol = self.connection.protocol();
        let (offered, stream) = match &self.offers {
            Some(offers) => (offers.offer(&mut request), None),
            None => (None, upgrade::offer_stream(request.extensions_mut())),
        };
        let connection = &self.connection;
        let is_http1 = protocol == Protocol::Http1;
        // Each head is asked about once, also if it is not served.
        let is_clear = !is_http1 || connection.is_framing_clear();
        // Observation is outside of the limits, so that refusals are observed, too.
        let peer = self.connection.peer();
        let observe = || self.observer.begin(&mut request, peer);
        let observed = match kept_panic::keep(observe).unwrap_or(Err(None)) {
            Ok(observed) => observed,
            Err(observed) => return self.panicked(&request, observed, offered),
        };
        connection.loop_state().counts().request_begins();
        if let Err(refused) = admission::admit(connection, &request, is_clear) {
            let answer = self.refused(refused, &request, observed, offered);
            if let Some(resets) = self.connection.resets() {
                unread::drop_in_turn(unread::rest_of(request.into_body()), resets);
            }
            return answer;
        }
        let time_limits = admission::time_limits(&request, connection.loop_state().limits());
        let is_tunnel = request.method() == Method::CONNECT;
        let most = connection.loop_state().limits().max_body.filter(|_| !is_tunnel);
        // A call without time limits may still be too large.
        let is_limited = time_limits == TimeLimits::Apply || most.is_some();
        let has_body = (is_http1 || is_limited) && !request.body().is_end_stream();
        let progress = has_body.then(Progress::default);
        if is_http1 {
            connection.last_body().begin(progress.clone());
        }
        let limited = progress.clone().filter(|_| is_limited);
        let (method, uri) = (request.method(), request.uri());
        let is_head = method == Method::HEAD;
        let in_flight = InFlight::new(connection.clone(), method, uri, time_limits, limited);
        if let Some(stream) = stream {
            in_flight.asks_for(stream);
        }
        let (head, body) = request.into_parts();
        let (resets, reads) = (connection.resets(), connection.body_reads());
        let body = RequestBody::new(body, progress, most, resets, reads);
        let service = self.service.clone();
        // The request is built in its final place: each further variable would cost another copy.
        Answer {
            state: State::Called { call: Some((service, Request::from_parts(head, body))) },
            held: None,
            in_flight: Some(in_flight),
            observed,
            offered,
            is_head,
        }
    }
}

pin_project! {
    /// The response's future. The service is called by the first poll, so that the request and the
    /// service's future are moved once less.
    pub(crate) struct Answer<S, F: Future> {
        #[pin]
        state: State<S, F>,
        // The service's answer, while hyper checks what is left of the request's body. Its drop may
        // panic, in addition to that of the service's future.
        held: Option<Contained<Box<F::Output>>>,
        in_flight: Option<InFlight>,
        observed: Option<Box<ObservedRequest>>,
        offered: Option<Offered>,
        is_head: bool,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, F> {
        Called { call: Option<(Rc<Contained<S>>, Request<RequestBody>)> },
        Serving { #[pin] future: F },
        // `unread`: the HTTP/1 connection, if the request has a body.
        Refused { head: Option<http::response::Parts>, unread: Option<Rc<ConnectionState>> },
        // The service panicked when it was called or polled.
        Panicked { has_waited: bool },
        // The service has answered, or its answer is not needed.
        Over,
    }
}

impl<S> State<S, S::Future>
where
    S: Service<Request<RequestBody>>,
{
    /// Calls the service, if it was not called yet, and polls its future. Both may panic.
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<S::Response, S::Error>> {
        if let StateProjection::Called { call } = self.as_mut().project()
            && let Some((service, request)) = call.take()
        {
            let future = service.call(request);
            self.set(Self::Serving { future });
        }
        match self.project() {
            StateProjection::Serving { future } => future.poll(cx),
            _ => Poll::Pending,
        }
    }
}

impl<S, B> Future for Answer<S, S::Future>
where
    S: Service<Request<RequestBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body<Error: Into<BoxError>>,
{
    type Output = Result<Response<ResponseBody<B>>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let entered = this.observed.as_deref().map(ObservedRequest::enter);
        let was_held = this.held.is_some();
        let polled = match this.state.as_mut().project() {
            StateProjection::Serving { .. } if was_held => {
                let held = this.held.take().and_then(Contained::into_inner);
                held.map_or(Poll::Pending, |held| Poll::Ready(*held))
            }
            StateProjection::Called { .. } | StateProjection::Serving { .. } => {
                let in_flight = this.in_flight.as_ref();
                let _peer =
                    in_flight.map(|it| peer::enter(it.connection().peer(), it.is_further()));
                in_flight.inspect(|it| it.working());
                kept_panic::keep(|| this.state.as_mut().poll(cx)).unwrap_or_else(|| {
                    // The service's future may panic in its drop, too.
                    contain(|| this.state.set(State::Panicked { has_waited: false }));
                    Poll::Pending
                })
            }
            StateProjection::Refused { head, unread } => {
                drop(entered);
                if let Some(connection) = unread.take() {
                    connection.last_body().is_refused();
                }
                let head = head.take().expect("polled after its end");
                let mut response = Response::from_parts(head, ResponseBody::empty());
                tell(&mut response, this.observed, this.offered);
                return Poll::Ready(Ok(response));
            }
            StateProjection::Panicked { .. } | StateProjection::Over => Poll::Pending,
        };
        drop(entered);
        let in_flight = this.in_flight.as_ref().expect("polled after its end");
        in_flight.worked();
        if let Some(refusal) = in_flight.verdict() {
            if refusal == Refusal::BodyTooLarge {
                in_flight.connection().loop_state().refuse(refusal);
            }
            let head = refused::head(Refused::new(refusal), in_flight.connection());
            // The service's answer is dropped, and then its future, with a body that it may hold.
            // Both may panic in their drop.
            contain(|| drop(polled));
            contain(|| this.state.set(State::Over));
            *this.in_flight = None;
            let mut response = Response::from_parts(head, ResponseBody::empty());
            tell(&mut response, this.observed, this.offered);
            return Poll::Ready(Ok(response));
        }
        // For HTTP/1, if the request's body was dropped before its end: hyper tries once to read
        // the rest, and closes the connection after the response if there is more. The response
        // says that it closes only if that read comes first.
        let takes_rest = || in_flight.connection().last_body().takes_rest();
        let Poll::Ready(answered) = polled else {
            let StateProjection::Panicked { has_waited } = this.state.project() else {
                return Poll::Pending;
            };
            if !mem::replace(has_waited, true) && takes_rest() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let head = refused::head_of_panic(in_flight.connection());
            *this.in_flight = None;
            let mut response = Response::from_parts(head, ResponseBody::empty());
            tell(&mut response, this.observed, this.offered);
            return Poll::Ready(Ok(response));
        };
        if !was_held && takes_rest() {
            *this.held = Some(Contained::new(Box::new(answered)));
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // The service's future may panic in its drop, which does not affect the answer.
        contain(|| this.state.set(State::Over));
        let mut response = answered.map_err(|error| failed(foreign_error::guard(error)))?;
        if in_flight.connection().protocol() == Protocol::Http2 {
            own_values::own(response.headers_mut());
        }
        in_flight.responds();
        if let Some(offered) = this.offered.as_mut() {
            offered.correct(&mut response);
        } else if response.status().is_informational() {
            upgrade::refuse_interim(&mut response);
        }
        in_flight.connection().loop_state().counts().response(response.status());
        // A handler may pass on a response of another server. hyper panics over the version of
        // HTTP/3, and marks the end of an HTTP/1.0 response by a close.
        *response.version_mut() = Version::HTTP_11;
        say_close(&mut response, in_flight.connection());
        // hyper leaves out these bodies with HTTP/1 only.
        let is_bodiless = in_flight.connection().protocol() != Protocol::Http1
            && (*this.is_head || is_without_body(response.status()));
        let in_flight = this.in_flight.take();
        let (head, body) = response.into_parts();
        let body = match is_bodiless {
            false => ResponseBody::of_service(body, in_flight),
            true => {
                contain(|| drop(body));
                ResponseBody::empty()
            }
        };
        let mut response = Response::from_parts(head, body);
        let length = || match response.body().size_hint().exact() {
            // Without a body, the length may be that of the response to a GET.
            Some(0) if is_bodiless || *this.is_head => None,
            exact => exact,
        };
        let has_no_length = match response.status() {
            // RFC 9110, 8.6.
            StatusCode::NO_CONTENT => true,
            // The length may be that of the corresponding 200. hyper does not send it with HTTP/1.
            StatusCode::NOT_MODIFIED => !is_bodiless && length() == Some(0),
            _ => false,
        };
        if has_no_length {
            response.headers_mut().remove(header::CONTENT_LENGTH);
        } else if length_header::is_wrong(response.headers(), length) {
            length_header::remove(response.headers_mut());
        }
        tell(&mut response, this.observed, this.offered);
        Poll::Ready(Ok(response))
    }
}

/// The service's error. hyper has no answer to it: it closes the connection, or resets the stream
/// of HTTP/2.
#[cold]
fn failed(error: BoxError) -> BoxError {
    static LIMIT: OncePerSecond = OncePerSecond::new();
    if let Some(count) = LIMIT.pass() {
        foreign_code::log!(
            warn,
            %error,
            count,
            "the service returned an error for a request: its connection is closed (HTTP/2: its stream is reset)"
        );
    }
    error
}

fn is_without_body(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Reports the response to the observer, and to the upgrade that was offered.
#[inline(always)]
fn tell<B: Body<Error: Into<BoxError>>>(
    response: &mut Response<ResponseBody<B>>,
    observed: &mut Option<Box<ObservedRequest>>,
    offered: &mut Option<Offered>,
) {
    if let Some(mut observed) = observed.take() {
        observed.respond(response);
        response.body_mut().is_observed_by(observed);
    }
    if let Some(offered) = offered.take() {
        offered.answered(response);
    }
    if !response.extensions().is_empty() {
        drop_extensions(response.extensions_mut());
    }
}

/// The extensions belong to the program, and may panic in their drop. hyper would drop them while
/// it writes the head, and the panic would end its connection. hyper itself reads only the reason
/// phrase. (It also has a private extension for the spelling of header names that its client has
/// kept, which cannot be named here.)
fn drop_extensions(extensions: &mut Extensions) {
    let mut theirs = mem::take(extensions);
    let reason = theirs.remove::<ReasonPhrase>();
    contain(|| drop(theirs));
    if let Some(reason) = reason {
        extensions.insert(reason);
    }
}
