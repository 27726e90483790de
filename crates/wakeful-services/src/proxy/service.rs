//! Forwards one request: rewrites its head, reads its body, and chooses a backend, or another one
//! if the first failed without acting on the request.

use std::convert::Infallible;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use wakeful::log::OncePerSecond;
use wakeful_http::RequestBody;
use wakeful_http::client::{ClientError, HttpVersion};
use wakeful_http::layers::bound::{Bound, Held};

use super::attempts::Attempts;
use super::backends::{Backends, Exchange};
use super::budget::Budget;
use super::counts::LoopCounts;
use super::headers::{self, Client, Refusal, Step};
use super::health::Id;
use super::request_body::{BufferedRequest, Progress};
use super::response_body::{ProxyBody, ReadAhead};
use super::silence::within;
use super::tunnel::Tunnels;
use crate::log;

/// The state that the connections of a loop share.
pub(super) struct Proxy {
    pub(super) backends: Rc<Backends>,
    pub(super) headers: headers::Settings,
    pub(super) request_buffer: usize,
    /// How many backends one request may try.
    pub(super) attempts: usize,
    pub(super) silence: Duration,
    pub(super) ahead: ReadAhead,
    pub(super) tunnels: Tunnels,
    /// How many connections to HTTP/1.1 backends are in use, on all loops together. `None`: there
    /// is no bound.
    pub(super) in_use: Option<Bound>,
    pub(super) counts: Arc<LoopCounts>,
}

/// Why there is no response from a backend.
pub(super) enum Trouble {
    Refused(Refusal),
    /// The client's body broke off.
    Client(String),
    /// The client's body stopped in the middle.
    ClientSilent,
    /// All backends were tried, or there is none.
    NoBackend,
    TooManyUpgrades,
    /// All descriptors for connections to backends were in use for too long.
    NoDescriptor,
    Overload(ClientError),
    TimedOut,
    BadGateway,
    /// A backend's answer has a header that is too large to forward.
    HeaderTooLarge,
}

impl Proxy {
    /// # Errors
    /// Never. Failures become responses.
    pub(super) async fn serve(
        self: Rc<Self>,
        client: Rc<Client>,
        request: Request<RequestBody>,
    ) -> Result<Response<ProxyBody>, Infallible> {
        let version = request.version();
        Ok(match self.forward(&client, request).await {
            Ok(response) => response,
            Err(trouble) => self.answer(&client, version, &trouble),
        })
    }

    async fn forward(
        &self,
        client: &Client,
        request: Request<RequestBody>,
    ) -> Result<Response<ProxyBody>, Trouble> {
        let (mut parts, body) = request.into_parts();
        let version = parts.version;
        match headers::to_backend(&mut parts, client, &self.headers) {
            Ok(Step::Forward(_)) => {}
            Ok(Step::Upgrade(asked)) => return Ok(self.upgrade(client, asked, parts).await),
            Ok(Step::Answer(status)) => return Ok(answer(status, ProxyBody::text(""))),
            Err(refusal) => return Err(Trouble::Refused(refusal)),
        }
        let budget: &Rc<Budget> = &self.ahead.budget;
        // A gRPC client may wait for an answer before it continues, so its request is not awaited.
        // A call of one message has usually come completely, and can be sent again.
        let waits = !is_grpc(&parts.headers);
        let body = BufferedRequest::read(body, self.request_buffer, waits, budget).await;
        let body = body.map_err(|error| Trouble::Client(error.to_string()))?;
        // The connection would treat a GET whose body has no length as one without a body. And
        // trailers need chunks.
        if self.headers.version == HttpVersion::Http1
            && (body.has_trailers() || body.size_hint().exact().is_none())
        {
            parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let (method, progress) = (parts.method.clone(), body.progress());
        let asked = self.ask(version, &method, Request::from_parts(parts, body)).await;
        let mut response = asked.unwrap_or_else(|trouble| self.answer(client, version, &trouble));
        // The backend has answered before the body's end, or not at all. It may stop to read, and
        // then this connection closes after the response.
        if version < Version::HTTP_2 && progress.is_open() {
            headers::say_close(response.headers_mut());
        }
        Ok(response)
    }

    async fn ask(
        &self,
        version: Version,
        method: &Method,
        mut request: Request<BufferedRequest>,
    ) -> Result<Response<ProxyBody>, Trouble> {
        let mut attempts = Attempts::new(self.attempts);
        let mut last = Trouble::NoBackend;
        let mut held = self.may_connect().await?;
        while let Some(mut exchange) = self.choose(&mut attempts, &last) {
            exchange.held = held.take();
            if attempts.is_retry() {
                self.counts.retried.add(1);
            }
            let progress = request.body().progress();
            progress.begin();
            let watch = |awaited| progress.awaits(awaited);
            let sent = exchange.host().send_watched(request, BufferedRequest::again, watch);
            let sent = within(self.silence, &progress, pin!(sent)).await;
            let failure = match sent {
                Some(Ok(response)) => {
                    return self.pass_on(version, method, exchange, response, progress);
                }
                Some(Err(failure)) => failure,
                None if progress.waits_for_client() => return Err(Trouble::ClientSilent),
                None => return Err(self.timed_out(&exchange)),
            };
            held = exchange.held.take();
            let error = failure.error;
            if !error.is_overload() && (error.is_request_body() || progress.client_has_gone()) {
                return Err(Trouble::Client(error.to_string()));
            }
            let goes_on = attempts.goes_on(exchange.backend(), &error);
            last = self.failed(&exchange, &progress, error);
            match failure.request {
                Some(untouched) if goes_on => request = *untouched,
                _ => break,
            }
        }
        Err(last)
    }

    /// Waits until another connection to a backend may be in use. A request has this right until
    /// the backend's response has ended, also while it tries one backend after the other: if it
    /// waited for a second one, requests could wait for each other.
    ///
    /// It may wait for as long as a backend may be silent. After that time some exchange has ended,
    /// unless all of them progress.
    pub(super) async fn may_connect(&self) -> Result<Option<Held>, Trouble> {
        let Some(in_use) = &self.in_use else { return Ok(None) };
        if let Some(held) = in_use.try_take(1) {
            return Ok(Some(held));
        }
        let held = in_use.clone().take(1, self.silence).await;
        held.map(Some).ok_or_else(|| {
            self.counts.overloads.add(1);
            Trouble::NoDescriptor
        })
    }

    /// Chooses a backend for a request after these `attempts`. `trouble` is the last failure.
    pub(super) fn choose(&self, attempts: &mut Attempts, trouble: &Trouble) -> Option<Exchange> {
        let other = self.choose_untried(attempts.tried(), trouble);
        // A busy backend would answer, so the client may come again.
        let is_busy = matches!(trouble, Trouble::Overload(_));
        if other.is_some() || is_busy || !attempts.begin_second() {
            return other;
        }
        self.choose_untried(attempts.tried(), trouble)
    }

    fn choose_untried(&self, tried: &[Id], trouble: &Trouble) -> Option<Exchange> {
        // Busy backends would answer, so they are no reason to use a backend that mostly fails.
        let is_busy = matches!(trouble, Trouble::Overload(_));
        let left_out = || (!is_busy).then(|| self.backends.choose_left_out(tried)).flatten();
        self.backends.choose(tried).or_else(left_out)
    }

    /// Handles an exchange without a response.
    pub(super) fn failed(
        &self,
        exchange: &Exchange,
        progress: &Progress,
        error: ClientError,
    ) -> Trouble {
        if error.is_overload() {
            self.counts.overloads.add(1);
            return Trouble::Overload(error);
        }
        if matches!(error, ClientError::HeaderTooLarge { .. }) {
            // The backend answers, so it must not be left out in favour of others.
            exchange.succeeded();
            static LIMIT: OncePerSecond = OncePerSecond::new();
            if let Some(count) = LIMIT.pass() {
                log::log!(warn, %error, count, "a response is answered 502: its header is too large (--max-response-headers)");
            }
            return Trouble::HeaderTooLarge;
        }
        if matches!(error, ClientError::Retired { .. }) {
            // The backend was removed after it had been chosen.
            return Trouble::NoBackend;
        }
        if !progress.may_be_clients_fault(self.silence) {
            exchange.failed(&error);
        }
        if error.is_timeout() { Trouble::TimedOut } else { Trouble::BadGateway }
    }

    pub(super) fn timed_out(&self, exchange: &Exchange) -> Trouble {
        exchange.failed(&format_args!("no response within {:?}", self.silence));
        Trouble::TimedOut
    }

    fn pass_on(
        &self,
        version: Version,
        method: &Method,
        exchange: Exchange,
        response: Response<wakeful_http::client::ResponseBody>,
        progress: Rc<Progress>,
    ) -> Result<Response<ProxyBody>, Trouble> {
        let (mut parts, body) = response.into_parts();
        if let Err(bad) = headers::to_client_of(version, &mut parts, method) {
            exchange.failed(&bad);
            return Err(Trouble::BadGateway);
        }
        exchange.answered();
        let asked = progress.clone();
        let body = ProxyBody::read(body, exchange, progress, self.ahead.clone());
        let body = body.map_err(|error| {
            if asked.client_has_gone() {
                Trouble::Client(error.to_string())
            } else {
                Trouble::BadGateway
            }
        });
        Ok(Response::from_parts(parts, body?))
    }

    pub(super) fn answer(
        &self,
        client: &Client,
        version: Version,
        trouble: &Trouble,
    ) -> Response<ProxyBody> {
        let (status, text) = match trouble {
            Trouble::Refused(refusal) => {
                self.counts.refused.add(1);
                log::log!(debug, peer = %client.peer(), error = %refusal, "a request is refused");
                (refusal.status(), format!("{refusal}\n"))
            }
            Trouble::Client(error) => {
                log::log!(debug, peer = %client.peer(), %error, "the body of a request broke off");
                (StatusCode::BAD_REQUEST, "the body broke off\n".to_owned())
            }
            Trouble::ClientSilent => {
                log::log!(debug, peer = %client.peer(), "the body of a request stopped");
                (StatusCode::REQUEST_TIMEOUT, "the body did not come in time\n".to_owned())
            }
            Trouble::NoBackend => {
                let why = if self.backends.are_none() { ": its name has no address" } else { "" };
                log::log!(debug, "no backend is available{why}: a request is answered 503");
                (StatusCode::SERVICE_UNAVAILABLE, format!("no backend is available{why}\n"))
            }
            Trouble::TooManyUpgrades => {
                let text = "too many connections are upgraded\n";
                (StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
            }
            Trouble::NoDescriptor => {
                static LIMIT: OncePerSecond = OncePerSecond::new();
                if let Some(count) = LIMIT.pass() {
                    log::log!(
                        warn,
                        count,
                        "out of descriptors for connections to backends: a request is answered 503. Raise RLIMIT_NOFILE (ulimit -n)"
                    );
                }
                (StatusCode::SERVICE_UNAVAILABLE, "all backends are busy\n".to_owned())
            }
            Trouble::Overload(error) => {
                log::log!(debug, %error, "no free connection to a backend: a request is answered 503");
                (StatusCode::SERVICE_UNAVAILABLE, "all backends are busy\n".to_owned())
            }
            Trouble::TimedOut => {
                (StatusCode::GATEWAY_TIMEOUT, "the backend did not answer in time\n".to_owned())
            }
            Trouble::BadGateway => {
                (StatusCode::BAD_GATEWAY, "the backend did not answer\n".to_owned())
            }
            Trouble::HeaderTooLarge => {
                let text = "the header of the backend's response is too large\n";
                (StatusCode::BAD_GATEWAY, text.to_owned())
            }
        };
        let mut response = answer(status, ProxyBody::text(text));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // It is unclear where the next request begins, so the connection must close.
        let is_unsure =
            matches!(trouble, Trouble::Refused(_) | Trouble::Client(_) | Trouble::ClientSilent);
        if is_unsure && version < Version::HTTP_2 {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

fn answer(status: StatusCode, body: ProxyBody) -> Response<ProxyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}
