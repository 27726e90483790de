//! Why a request is not forwarded.

use http::StatusCode;

/// The reason why a request is not forwarded. The client gets [`status`](Self::status).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Each says it by its text.
pub enum Refusal {
    #[error("CONNECT tunnels are not supported, except for WebSockets over HTTP/2")]
    Connect,
    #[error("TRACE has a body")]
    TraceWithBody,
    #[error("both Content-Length and Transfer-Encoding")]
    LengthAndCoding,
    #[error("Content-Length is not a number, or there are several that differ")]
    ContentLength,
    #[error("the transfer coding is malformed, or chunked twice")]
    TransferEncoding,
    #[error("a transfer coding other than chunked")]
    UnknownCoding,
    #[error("Transfer-Encoding in a request that is not HTTP/1.1")]
    CodingNotAllowed,
    #[error("there is no Host")]
    NoHost,
    #[error("more than one Host")]
    ManyHosts,
    #[error("the host is invalid")]
    InvalidHost,
    #[error("Host and :authority differ")]
    HostsDiffer,
    #[error("the request target does not have the form that its method requires")]
    Target,
    #[error("a scheme other than http and https")]
    Scheme,
    #[error("a connection-specific header field in HTTP/2")]
    ConnectionField,
    #[error("an expectation other than 100-continue")]
    Expectation,
    #[error("the HTTP version is not supported")]
    Version,
    #[error("the request has passed this proxy before: it would loop forever")]
    Loop,
}

impl Refusal {
    /// Returns the status that the client gets.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Connect | Self::UnknownCoding => StatusCode::NOT_IMPLEMENTED,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::Loop => StatusCode::LOOP_DETECTED,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}
