//! `connection: close`.

use http::{HeaderValue, Response, StatusCode, header};

use crate::connection::{ConnectionState, Protocol};

/// Adds the header to the last response of a connection, if the protocol has such a header.
pub(super) fn say_close<B>(response: &mut Response<B>, connection: &ConnectionState) {
    let is_last = connection.protocol() == Protocol::Http1 && connection.closing().has_begun();
    if is_last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        // A 426 names the protocols that the server wants (RFC 9110, 7.8).
        let names_protocols = response.headers().contains_key(header::UPGRADE);
        let value = if names_protocols { "upgrade, close" } else { "close" };
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static(value));
    }
}
