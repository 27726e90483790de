//! Why there is no upgrade.

/// Why there is no upgrade.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpgradeError {
    /// The request asked for none.
    #[error("the request does not ask for an upgrade")]
    NotAsked,
    /// The response was not 101, nor 2xx to CONNECT; or the connection ended before.
    #[error("the response was no upgrade, or could not be sent")]
    Refused,
    /// The future was polled on a thread that is not that of its connection's loop.
    #[error("an upgrade is awaited on the loop of its connection, and this is another thread")]
    OtherThread,
    /// On HTTP/2.
    #[error("the stream was not upgraded: {0}")]
    Http2(hyper::Error),
}
