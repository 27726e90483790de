//! Which requests are refused before the service is called. `refused` has the answers.

use http::{Method, Request, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;

use super::refused::Refused;
use crate::connection::{ConnectionState, Protocol, TimeLimits};
use crate::counts::Refusal;
use crate::limits::{GrpcCalls, Limits};

/// The longest possible body, in bytes.
const LONGEST_BODY: u64 = i64::MAX as u64;

/// Returns whether `request` may be served. Then it counts as in flight on all loops. `is_clear`:
/// the length of its body can be understood in one way only.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn admit(
    connection: &ConnectionState,
    request: &Request<Incoming>,
    is_clear: bool,
) -> Result<(), Refused> {
    let limits = connection.loop_state().limits();
    if connection.protocol() == Protocol::Http1 {
        if !is_clear {
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
    // Even without a limit, no body may be longer than this, so that counting its bytes cannot
    // overflow.
    let most = limits.max_body.map_or(LONGEST_BODY, |most| most.min(LONGEST_BODY));
    let is_too_large = request.body().size_hint().lower() > most;
    if request.method() != Method::CONNECT && is_too_large {
        return Err(Refused::new(Refusal::BodyTooLarge));
    }
    if let Err(wait) = connection.movable().ask_peer() {
        let refused = Refused::new(Refusal::PeerRate);
        return Err(refused.retry_after(wait.div_ceil(1_000_000_000).max(1)));
    }
    if !connection.loop_state().begin_request() {
        return Err(Refused::new(Refusal::Requests).retry_after(1));
    }
    Ok(())
}

/// Does the request have exactly one `Host` header, as RFC 9112, 3.2, requires? HTTP/1.0 may do
/// without.
fn has_right_host(request: &Request<Incoming>) -> bool {
    let headers = request.headers();
    // If no name occurs twice, the other values need not be searched. In most requests `Host` is
    // the first header, which is found without a hash of the name.
    if headers.len() == headers.keys_len() {
        return headers.keys().next() == Some(&header::HOST)
            || headers.contains_key(header::HOST)
            || request.version() == Version::HTTP_10;
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    let has_host = hosts.next().is_some() || request.version() == Version::HTTP_10;
    has_host && hosts.next().is_none()
}

/// Returns whether the time limits apply to `request`. They do not apply to a stream that may last
/// for any time and has its own deadline.
pub(super) fn time_limits(request: &Request<Incoming>, limits: &Limits) -> TimeLimits {
    let is_grpc = || {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        content_type.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
    };
    let spares_calls = limits.grpc_calls == GrpcCalls::Unlimited;
    let is_tunnel = || request.method() == Method::CONNECT;
    if is_tunnel() || spares_calls && is_grpc() { TimeLimits::Exempt } else { TimeLimits::Apply }
}
