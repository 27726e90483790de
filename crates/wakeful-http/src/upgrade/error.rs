//! The reasons why an upgrade fails.

use std::io;

/// Returns an error that says the same.
pub(super) fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// The error of an upgrade that did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpgradeError {
    /// The request did not ask for an upgrade.
    #[error("the request does not ask for an upgrade")]
    NotAsked,
    /// The response was neither 101 nor (for CONNECT) 2xx; the connection ended before the response
    /// was written; or another future, made from a copy of the request's extensions, got the
    /// connection.
    #[error("the response was not an upgrade, or could not be sent")]
    Refused,
    /// The future was polled on a thread other than that of the connection's loop.
    #[error(
        "an upgrade must be awaited on the thread of its connection's loop, and this is another thread"
    )]
    OtherThread,
    /// The request came over HTTP/2, and its stream could not be upgraded.
    #[error("the stream was not upgraded: {0}")]
    Http2(hyper::Error),
}
