//! The answers to requests that the server refuses: the status of each [`Refusal`], such as 431 and
//! 503; and the answer if a handler panicked.
//!
//! hyper itself answers HTTP/1 heads that it cannot parse: 431 beyond `max_header_size`, and 400
//! for malformed ones; `http1` counts these.

use http::{HeaderValue, Response, StatusCode, header};

use super::close_header::say_close;
use crate::connection::{ConnectionState, Protocol};
use crate::counts::Refusal;

/// What the server answers by itself.
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

    /// The client may try again after so many seconds.
    pub(super) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }
}

/// The answer to what is refused; the connection goes with it if what would come of the request is
/// not wanted.
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

/// The answer to a request whose handler panicked. It does not tell what the panic said.
#[cold]
pub(super) fn head_of_panic(connection: &ConnectionState) -> http::response::Parts {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(0));
    say_close(&mut response, connection);
    connection.loop_state().counts().response(response.status());
    response.into_parts().0
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
