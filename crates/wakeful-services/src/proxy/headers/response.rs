//! Turns the head of a backend's response into one for the client.

use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE, VIA};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use wakeful_http::upgrade::KnownRefusal;

use super::{framing, names, via};

/// The reason why a backend's response is not forwarded. The client gets 502.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Each says it by its text.
pub enum BadResponse {
    #[error("both Content-Length and Transfer-Encoding")]
    LengthAndCoding,
    #[error("Content-Length is not a number, or there are several that differ")]
    ContentLength,
    #[error("a transfer coding other than chunked")]
    Coding,
    #[error("it switches to a protocol that the client did not ask for")]
    SwitchingProtocols,
    #[error("it switches to a different protocol from the one that the client asked for")]
    OtherProtocol,
    #[error("Sec-WebSocket-Accept is not the answer to the key")]
    WebSocketAccept,
    #[error("it accepts a WebSocket without switching to it")]
    NoUpgrade,
}

/// Turns the head of a backend's response to `method` into a head for the client.
///
/// # Errors
/// The response must not be forwarded.
pub fn to_client(parts: &mut Parts, method: &Method) -> Result<(), BadResponse> {
    if parts.status.is_informational() {
        return Err(BadResponse::SwitchingProtocols);
    }
    let headers = &mut parts.headers;
    let length = framing::content_length(headers).ok_or(BadResponse::ContentLength)?;
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        if length.is_some() {
            return Err(BadResponse::LengthAndCoding);
        }
        let is_chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        if !is_chunked || codings.next().is_some() {
            return Err(BadResponse::Coding);
        }
    }
    clean(parts);
    // Here the length is that of a body that does not come. Otherwise the body itself has the
    // length.
    let is_bodiless = *method == Method::HEAD || parts.status == StatusCode::NOT_MODIFIED;
    if let Some(length) = length.filter(|_| is_bodiless) {
        parts.headers.insert(CONTENT_LENGTH, length.into());
    }
    Ok(())
}

/// The same as [`to_client`], for a client of this `version`. A 426 names the protocols that the
/// backend wants (RFC 9110, 15.5.22), if the client's version has upgrades.
pub(in super::super) fn to_client_of(
    version: Version,
    parts: &mut Parts,
    method: &Method,
) -> Result<(), BadResponse> {
    if parts.status != StatusCode::UPGRADE_REQUIRED {
        return to_client(parts, method);
    }
    let wanted: Vec<_> = parts.headers.get_all(UPGRADE).iter().cloned().collect();
    to_client(parts, method)?;
    // It is the backend's answer, and not a mistake of the proxy.
    parts.extensions.insert(KnownRefusal);
    if version == Version::HTTP_11 && !wanted.is_empty() {
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        wanted.into_iter().for_each(|value| {
            parts.headers.append(UPGRADE, value);
        });
    }
    Ok(())
}

/// Says to a client of HTTP/1 that its connection closes after this response.
pub(in super::super) fn say_close(headers: &mut HeaderMap) {
    let value = if headers.contains_key(UPGRADE) { "upgrade, close" } else { "close" };
    headers.insert(CONNECTION, HeaderValue::from_static(value));
}

/// Removes the fields for the hop to the backend, and the framing, and adds `Via`.
pub(super) fn clean(parts: &mut Parts) {
    names::remove_hop_by_hop(&mut parts.headers);
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.append(VIA, via::of_response(parts.version));
    // The client's connection sets the version.
    parts.version = Version::HTTP_11;
}
