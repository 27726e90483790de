//! What is refused before the service is called, what is answered in its place, and what answers
//! say of the connection.

use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::connection::deadlines::Watch;
use crate::connection::protocol::Protocol;
use crate::connection::requests::Kind;
use crate::counts::Refusal;
use crate::limits::GrpcCalls;
use crate::limits::Limits;

/// In bytes.
const LONGEST_BODY: u64 = i64::MAX as u64;

impl Watch {
    /// May it be served? Then it counts as in flight on all loops.
    pub(crate) fn admit(&self, request: &Request<Incoming>) -> Result<(), Refused> {
        let limits = self.local.limits();
        if self.protocol == Protocol::Http1 {
            if !self.is_framing_clear() {
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
        // Where nothing is limited too: no body is as long, and what counts its bytes must not
        // overflow.
        let most = if limits.max_body > 0 { limits.max_body } else { LONGEST_BODY };
        let is_too_large = request.body().size_hint().lower() > most.min(LONGEST_BODY);
        if request.method() != Method::CONNECT && is_too_large {
            return Err(Refused::new(Refusal::BodyTooLarge));
        }
        if let Err(wait) = self.life.ask_peer() {
            let refused = Refused::new(Refusal::PeerRate);
            return Err(Refused {
                retry_after: Some(wait.div_ceil(1_000_000_000).max(1)),
                ..refused
            });
        }
        if !self.local.begin_request() {
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

/// A stream that goes on for as long as it likes, with a deadline of its own, or an ordinary
/// request.
pub(crate) fn kind(request: &Request<Incoming>, limits: &Limits) -> Kind {
    let is_grpc = || {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        content_type.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
    };
    let spares_calls = limits.grpc_calls == GrpcCalls::Unlimited;
    let is_tunnel = || request.method() == Method::CONNECT;
    if is_tunnel() || spares_calls && is_grpc() { Kind::Free } else { Kind::Plain }
}

/// What the server answers by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    /// In seconds.
    retry_after: Option<u64>,
}

impl Refused {
    pub(crate) fn new(refusal: Refusal) -> Self {
        Self { refusal, retry_after: None }
    }
}

/// The answer to what is refused; the connection goes with it if what would come of the request is
/// not wanted.
pub(crate) fn head(refused: Refused, watch: &Watch) -> http::response::Parts {
    let status = status(refused.refusal);
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(0));
    if let Some(seconds) = refused.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    let is_of_request_only =
        matches!(refused.refusal, Refusal::PeerRate | Refusal::Requests | Refusal::UriTooLong);
    if watch.protocol == Protocol::Http1 && !is_of_request_only {
        watch.close_after(refused.refusal);
    }
    say_close(&mut response, watch);
    watch.local.counts().response(status);
    response.into_parts().0
}

/// The last response of a connection says so, where the protocol has it in the response.
pub(crate) fn say_close<B>(response: &mut Response<B>, watch: &Watch) {
    let is_last = watch.protocol == Protocol::Http1 && watch.is_closing();
    if is_last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// What is answered to what is refused.
fn status(refusal: Refusal) -> StatusCode {
    match refusal {
        Refusal::HeaderTimeout | Refusal::BodyTimeout | Refusal::SlowRequest => {
            StatusCode::REQUEST_TIMEOUT
        }
        Refusal::Host | Refusal::AmbiguousLength => StatusCode::BAD_REQUEST,
        Refusal::PeerRate => StatusCode::TOO_MANY_REQUESTS,
        Refusal::HeaderTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Refusal::UriTooLong => StatusCode::URI_TOO_LONG,
        Refusal::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        // Also for what took too long: 504 would say that somebody behind the server did.
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}
