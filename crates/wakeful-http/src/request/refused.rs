//! The answers to requests that the server refuses: the status of each [`Refusal`], such as 431 and
//! 503; and the answer if a handler panicked.
//!
//! hyper itself answers HTTP/1 heads that it cannot parse: 431 beyond `max_header_size`, and 400
//! for malformed ones; `http1` counts these.

use http::{HeaderValue, Response, StatusCode, header};

use super::close_header::say_close;
use crate::connection::{ConnectionState, Protocol};
use crate::counts::Refusal;

/// A refusal that the server itself answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused {
    pub(super) refusal: Refusal,
    /// In seconds.
    retry_after: Option<u64>,
}

impl Refused {
    pub(super) fn new(refusal: Refusal) -> Self {
        Self { refusal, retry_after: None }
    }

    /// Tells the client to try again after `seconds`.
    pub(super) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }
}

/// The head of the answer to a refusal. If more data of the request would come that nobody wants,
/// the connection closes.
pub(super) fn head(refused: Refused, connection: &ConnectionState) -> http::response::Parts {
    let status = status(refused.refusal);
    let mut response = Response::new(());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(0));
    if let Some(seconds) = refused.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    let is_of_request_only =
        matches!(refused.refusal, Refusal::PeerRate | Refusal::Requests | Refusal::UriTooLong);
    if connection.protocol() == Protocol::Http1 && !is_of_request_only {
        connection.closing().begin_after(refused.refusal);
    }
    say_close(&mut response, connection);
    connection.loop_state().counts().response(status);
    response.into_parts().0
}

/// The head of the answer to a request whose handler panicked. It does not contain the panic's
/// text.
#[cold]
pub(super) fn head_of_panic(connection: &ConnectionState) -> http::response::Parts {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(0));
    say_close(&mut response, connection);
    connection.loop_state().counts().response(response.status());
    response.into_parts().0
}

/// The status of each refusal.
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
        // This includes requests that took too long: 504 would mean that another server behind this
        // one was slow.
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}
