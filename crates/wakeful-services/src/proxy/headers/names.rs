//! Fields that are meant for one hop, and fields that a backend would mistake for others.

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, COOKIE, EXPECT, HOST, MAX_FORWARDS, RANGE, SET_COOKIE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The fields that always belong to one connection, whether `Connection` names them or not (RFC
/// 9110, 7.6.1). `proxy-*` belongs to it, too.
const HOP_BY_HOP: [HeaderName; 6] = [
    CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("http2-settings"),
];

/// Names that CGI backends cannot distinguish from the same names with other characters in place of
/// the hyphens, and would believe.
const NOT_FOLDED: [&str; 6] =
    ["host", "content-length", "content-type", "transfer-encoding", "connection", "authorization"];

/// Does a request of HTTP/2 have fields of a connection, which are an error there (RFC 9113,
/// 8.2.2)?
pub(super) fn has_connection_fields(headers: &HeaderMap) -> bool {
    let other = |name: &HeaderName| *name != TE && headers.contains_key(name);
    HOP_BY_HOP.iter().any(other) || headers.contains_key("proxy-connection")
}

/// Removes the fields that are meant only for this hop: those that a `Connection` field names,
/// those that always are, and `proxy-*`. These include `proxy`, because CGI turns it into the
/// variable HTTP_PROXY.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named = |value: &HeaderValue| -> Vec<HeaderName> {
            let names = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            names.filter_map(|name| HeaderName::from_bytes(name).ok()).collect()
        };
        let named: Vec<_> = headers.get_all(CONNECTION).iter().flat_map(named).collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    remove_where(headers, is_misleading);
}

/// Removes matching fields. Usually there are none, and then nothing is allocated.
pub(super) fn remove_where(headers: &mut HeaderMap, is_one: impl Fn(&HeaderName) -> bool) {
    if headers.keys().any(&is_one) {
        let names: Vec<_> = headers.keys().filter(|name| is_one(name)).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }
}

fn is_misleading(name: &HeaderName) -> bool {
    let name = name.as_str();
    if let Some(rest) = name.strip_prefix("proxy") {
        return !rest.starts_with(|first: char| first.is_ascii_alphanumeric());
    }
    let is_folded = |byte: u8| !byte.is_ascii_alphanumeric() && byte != b'-';
    if !name.bytes().any(is_folded) {
        return false;
    }
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    NOT_FOLDED.contains(&&*name) || is_about_client(&name)
}

/// Could a backend take the field for the truth about a client? That applies to `Forwarded`,
/// `X-Forwarded` with any suffix, and `X-Real-IP`.
pub(super) fn is_about_client(name: &str) -> bool {
    name.starts_with("x-forwarded") || matches!(name, "forwarded" | "x-real-ip")
}

/// Does the sender accept trailers? That is the only part of `TE` that is forwarded.
pub(super) fn wants_trailers(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(TE).iter();
    values.any(|value| {
        let mut codings = value.as_bytes().split(|byte| *byte == b',');
        codings.any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    })
}

/// Fields that a trailer must not contain, because a reader that merges it into the head would be
/// misled: framing, routing, credentials (RFC 9110, 6.5.1), and fields about the client, see
/// [`forwarded`](super::forwarded).
const NOT_IN_TRAILERS: [HeaderName; 14] = [
    CONTENT_LENGTH,
    HOST,
    TRAILER,
    AUTHORIZATION,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_RANGE,
    CONTENT_TYPE,
    COOKIE,
    EXPECT,
    RANGE,
    SET_COOKIE,
    MAX_FORWARDS,
    VIA,
];

/// Removes the fields that trailers must not have, in either direction.
#[must_use]
pub fn trailers(mut trailers: HeaderMap) -> HeaderMap {
    remove_hop_by_hop(&mut trailers);
    for name in &NOT_IN_TRAILERS {
        trailers.remove(name);
    }
    remove_where(&mut trailers, |name| is_about_client(name.as_str()));
    trailers
}
