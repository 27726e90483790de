//! `connection: close`.

use http::{HeaderValue, Response, StatusCode, header};

use crate::connection::{ConnectionState, Protocol};

/// The last response of a connection says so, where the protocol has it in the response.
pub(super) fn say_close<B>(response: &mut Response<B>, connection: &ConnectionState) {
    let is_last = connection.protocol() == Protocol::Http1 && connection.closing().has_begun();
    if is_last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}
