//! What a proxy does to the heads of messages, without any I/O: which messages it refuses, which
//! headers it removes, and which it adds.
//!
//! The rules are those of RFC 9110 (7.6) and RFC 9112 (3.2, 6). The order matters. First the
//! received head determines the framing and the host. Then all hop-by-hop headers are removed,
//! including those that the message itself names in `Connection`. The proxy's own headers are added
//! last, so a `Connection: host` cannot remove them. No body length is ever copied: the connection
//! to the backend frames its own messages.

// `names` has the headers that are removed. `framing` finds the end of a body, and `host` the host
// of a request. `forwarded` tells backends about the client, and `via` has the proxies that a
// message has passed. `upgrade` handles requests that leave HTTP, and `response` handles responses.

mod forwarded;
mod framing;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod host;
mod names;
mod refusal;
mod response;
mod settings;
mod upgrade;
mod via;

use http::header::{CONTENT_LENGTH, COOKIE, EXPECT, MAX_FORWARDS, TE, VIA};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use wakeful_http::client::HttpVersion;

pub use self::forwarded::{Client, ForwardedHeaders};
pub use self::framing::Framing;
pub use self::names::trailers;
pub use self::refusal::Refusal;
pub use self::response::{BadResponse, to_client};
pub(super) use self::response::{say_close, to_client_of};
pub use self::settings::{Settings, Upgrades};
pub use self::upgrade::{Asked, Question};
pub use self::via::Pseudonym;

/// What the proxy does with a valid request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The proxy forwards it, with a body of this framing.
    Forward(Framing),
    /// The request has no body, and asks for another protocol in this way: see [`Question::of`].
    Upgrade(Asked),
    /// The request must not be forwarded (`Max-Forwards: 0`). The proxy answers it with this
    /// status.
    Answer(StatusCode),
}

/// Turns the head of a client's request into a head for a backend.
///
/// # Errors
/// The request must not be forwarded. A part of its head may already have been changed.
pub fn to_backend(
    parts: &mut Parts,
    client: &Client,
    settings: &Settings,
) -> Result<Step, Refusal> {
    if parts.method == Method::CONNECT && parts.version != Version::HTTP_2 {
        return Err(Refusal::Connect);
    }
    // This comes before `Connection` may remove `Via`.
    if settings.pseudonym.is_in(&parts.headers) {
        return Err(Refusal::Loop);
    }
    let framing = framing::of_request(parts.version, &parts.headers)?;
    let upgrade = upgrade::asked(parts, framing, settings)?;
    if parts.method == Method::TRACE && framing != Framing::None {
        return Err(Refusal::TraceWithBody);
    }
    let host = host::of(parts)?;
    check_expectation(&parts.headers)?;
    let headers = &mut parts.headers;
    let wants_trailers = names::wants_trailers(headers);
    names::remove_hop_by_hop(headers);
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
    if framing == Framing::Length(0) {
        // The request has a length of 0, and the connection itself would not send that.
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    if let Some(answer) = count_down(&parts.method, headers) {
        return Ok(Step::Answer(answer));
    }
    if wants_trailers && upgrade.is_none() {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        if settings.version == HttpVersion::Http1 {
            headers.insert(http::header::CONNECTION, HeaderValue::from_static("te"));
        }
    }
    join_cookies(parts.version, headers);
    headers.append(VIA, settings.pseudonym.entry(parts.version));
    forwarded::tell(headers, client, host.as_ref(), settings.forwarded);
    host::put(headers, host);
    if let Some((asked, protocol)) = upgrade {
        upgrade::put(parts, asked, protocol);
        return Ok(Step::Upgrade(asked));
    }
    Ok(Step::Forward(framing))
}

/// The proxy itself answers the expectation, by reading the body.
fn check_expectation(headers: &HeaderMap) -> Result<(), Refusal> {
    let known = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if headers.get_all(EXPECT).iter().all(known) { Ok(()) } else { Err(Refusal::Expectation) }
}

/// Handles `Max-Forwards` (RFC 9110, 7.6.2): it applies only to TRACE and OPTIONS, and an invalid
/// number is left alone.
fn count_down(method: &Method, headers: &mut HeaderMap) -> Option<StatusCode> {
    if *method != Method::TRACE && *method != Method::OPTIONS {
        return None;
    }
    let left: u64 = headers.get(MAX_FORWARDS)?.to_str().ok()?.trim().parse().ok()?;
    match left.checked_sub(1) {
        Some(left) => {
            headers.insert(MAX_FORWARDS, left.into());
            None
        }
        // A request may contain secrets, so TRACE does not send it back.
        None if *method == Method::TRACE => Some(StatusCode::METHOD_NOT_ALLOWED),
        None => Some(StatusCode::NO_CONTENT),
    }
}

/// Joins the cookies, which HTTP/2 may send separately, because HTTP/1 allows only one line (RFC
/// 9113, 8.2.3).
fn join_cookies(version: Version, headers: &mut HeaderMap) {
    if version != Version::HTTP_2 || headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(COOKIE, cookie);
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
