//! Where a body ends. If two readers disagree about that, requests can be smuggled. So every
//! message that can be read in two ways is refused.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Version};

use super::{Refusal, names};

/// How a request's body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// HTTP/1: there is no body. HTTP/2: the body ends with its stream.
    None,
    /// The body has this many bytes.
    Length(u64),
    /// HTTP/1.1: the body is chunked.
    Chunked,
}

/// # Errors
/// Two readers could understand it differently.
pub(super) fn of_request(version: Version, headers: &HeaderMap) -> Result<Framing, Refusal> {
    let coding = match version {
        Version::HTTP_2 if names::has_connection_fields(headers) => {
            return Err(Refusal::ConnectionField);
        }
        Version::HTTP_2 | Version::HTTP_10 if headers.contains_key(TRANSFER_ENCODING) => {
            return Err(Refusal::CodingNotAllowed);
        }
        Version::HTTP_2 | Version::HTTP_10 => None,
        Version::HTTP_11 => coding(headers)?,
        _ => return Err(Refusal::Version),
    };
    match (coding, content_length(headers).ok_or(Refusal::ContentLength)?) {
        (Some(Chunked), None) => Ok(Framing::Chunked),
        (Some(Chunked), Some(_)) => Err(Refusal::LengthAndCoding),
        (None, Some(length)) => Ok(Framing::Length(length)),
        (None, None) => Ok(Framing::None),
    }
}

struct Chunked;

/// Whether the body is chunked. Any other coding, or a repeated one, is refused.
fn coding(headers: &HeaderMap) -> Result<Option<Chunked>, Refusal> {
    let mut values = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refusal::TransferEncoding);
    }
    if value.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Ok(Some(Chunked));
    }
    let mut codings = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let is_token = |coding: &[u8]| {
        !coding.is_empty() && coding.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    };
    let is_known = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    // The list is valid, but has a coding that the proxy does not support.
    let is_unknown = codings.clone().all(is_token)
        && codings.clone().filter(|coding| is_known(coding)).count() == 1
        && codings.next_back().is_some_and(is_known);
    Err(if is_unknown { Refusal::UnknownCoding } else { Refusal::TransferEncoding })
}

/// The length on which all headers agree, if there is one. The outer `None`: they disagree, or one
/// is no number.
pub(super) fn content_length(headers: &HeaderMap) -> Option<Option<u64>> {
    let mut agreed = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let length = digits(value)?;
        if agreed.is_some_and(|agreed| agreed != length) {
            return None;
        }
        agreed = Some(length);
    }
    Some(agreed)
}

/// Parses a number of digits only: no sign, no space, no list.
fn digits(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}
