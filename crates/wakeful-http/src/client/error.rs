//! The errors of requests.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::local_port;

/// The error of parsing a [`Target`](super::Target): the string or URI names no server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an HTTP server's address: {reason}")]
pub struct InvalidTarget {
    pub(super) text: String,
    pub(super) reason: &'static str,
}

/// The error of a request that has no complete response. Each error names the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The request's URI names no server that a client can talk to.
    #[error(transparent)]
    Target(#[from] InvalidTarget),
    /// This client cannot send the request: for example, its method is CONNECT, its URI has a user
    /// name, or the server allows no HTTP/2 streams.
    #[error("the request to {target} cannot be sent: {reason}")]
    Unsupported {
        /// The server.
        target: Arc<str>,
        /// What is wrong with the request.
        reason: &'static str,
    },
    /// No connection could be made. The source is the error of the last address that was tried.
    #[error("cannot connect to {target}: {source}")]
    Connect {
        /// The server.
        target: Arc<str>,
        /// The error of the kernel, the lookup or the TLS handshake.
        source: io::Error,
    },
    /// No connection could be made in time.
    #[error("no connection to {target} within {after:?}")]
    ConnectTimeout {
        /// The server.
        target: Arc<str>,
        /// The limit.
        after: Duration,
    },
    /// Too many requests already wait for a connection.
    #[error("{waiting} requests already wait for a connection to {target}")]
    QueueFull {
        /// The server.
        target: Arc<str>,
        /// How many requests wait.
        waiting: usize,
    },
    /// All connections were in use for too long.
    #[error("all connections to {target} were in use for {after:?}")]
    QueueTimeout {
        /// The server.
        target: Arc<str>,
        /// The limit.
        after: Duration,
    },
    /// The host was [retired](super::Client::retire) before the request had a connection. The
    /// server has seen nothing of the request.
    #[error("the pool of {target} is retired and takes no more requests")]
    Retired {
        /// The server.
        target: Arc<str>,
    },
    /// The head of the response did not arrive in time.
    #[error("no response from {target} within {after:?}")]
    HeadTimeout {
        /// The server.
        target: Arc<str>,
        /// The limit.
        after: Duration,
    },
    /// The response was not complete in time.
    #[error("the response of {target} was not complete within {after:?}")]
    TotalTimeout {
        /// The server.
        target: Arc<str>,
        /// The limit.
        after: Duration,
    },
    /// The exchange ended before the head of a response was complete: the connection closed or was
    /// reset, the answer was not HTTP, or the request's own body failed.
    #[error("no response from {target}: {}", chain(.source))]
    Exchange {
        /// The server.
        target: Arc<str>,
        /// The error of hyper.
        source: hyper::Error,
    },
    /// The header of the response exceeds a limit of the client (HTTP/1.1). Raise the limit with
    /// [`ClientBuilder::max_headers`](super::ClientBuilder::max_headers) or
    /// [`max_header_size`](super::ClientBuilder::max_header_size).
    #[error(
        "the header of {target}'s response has more than {max_headers} fields (max_headers) or {max_header_size} bytes (max_header_size)"
    )]
    HeaderTooLarge {
        /// The server.
        target: Arc<str>,
        /// The limit on the number of fields.
        max_headers: usize,
        /// The limit on the number of bytes.
        max_header_size: usize,
    },
    /// The connection ended while the request waited for a stream on it (HTTP/2). The server has
    /// most likely not seen the request.
    #[error("no response from {target}: the connection ended before the request had a stream")]
    Ended {
        /// The server.
        target: Arc<str>,
    },
    /// The program panicked within a connection that several requests share, for example in the
    /// body of a request. This ended the connection.
    #[error("no response from {target}, or not all of it: a panic has ended the connection")]
    Panicked {
        /// The server.
        target: Arc<str>,
    },
    /// The server reset the stream of its response without an error code, before the response was
    /// complete (HTTP/2).
    #[error("the response of {target} broke off: its stream ended without an error")]
    CutShort {
        /// The server.
        target: Arc<str>,
    },
    /// The body was read on a thread other than that of its client's loop.
    #[error(
        "a response must be read on the thread of its client's loop, and this is another thread"
    )]
    OtherThread,
    /// The body of the response broke off.
    #[error("the response of {target} broke off: {}", chain(.source))]
    Body {
        /// The server.
        target: Arc<str>,
        /// The error of hyper.
        source: hyper::Error,
    },
}

impl ClientError {
    /// Returns whether the request failed because no connection could be made. Then nothing of the
    /// request was sent.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::ConnectTimeout { .. })
    }

    /// Returns whether a time limit was exceeded.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::ConnectTimeout { .. }
                | Self::QueueTimeout { .. }
                | Self::HeadTimeout { .. }
                | Self::TotalTimeout { .. }
        )
    }

    /// Returns whether the client had no capacity for the request: too many requests waited for a
    /// connection, the wait was too long, or no descriptors, memory or local ports were left for a
    /// connection.
    #[must_use]
    pub fn is_overload(&self) -> bool {
        match self {
            Self::QueueFull { .. } | Self::QueueTimeout { .. } => true,
            Self::Connect { source, .. } => is_shortage(source),
            _ => false,
        }
    }

    /// Returns whether the request failed because its own body broke off or could not be read. This
    /// is not the server's fault. HTTP/2 does not tell: there the body's failure resets the stream,
    /// and this returns `false`.
    #[must_use]
    pub fn is_request_body(&self) -> bool {
        matches!(self, Self::Exchange { source, .. } if source.is_user())
    }
}

/// Is the shortage on this machine, and not at the server?
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::NOSPC];
    let code = local_port::errno(error);
    code.is_some_and(|code| shortages.contains(&code)) || local_port::is_missing(error)
}

/// The error with its source: hyper says what it was doing, and the source why that failed.
fn chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
