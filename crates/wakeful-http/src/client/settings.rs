//! A client's settings and counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::target::HttpVersion;
use crate::limits::{LONGEST_TIMEOUT, SHORTEST_TIMEOUT};
use crate::tls::ClientTls;

/// hyper's smallest possible buffer of a connection.
const SMALLEST_HEADER_LIMIT: usize = 8 * 1024;
/// This many fields fit on hyper's stack. Another number costs an allocation for each response.
pub(super) const HYPERS_MAX_HEADERS: usize = 100;
/// The most fields that `http::HeaderMap` can hold.
const GREATEST_HEADERS_LIMIT: usize = 24_576;
/// The most requests that an HTTP/2 connection carries at a time.
pub(super) const MOST_STREAMS: u16 = 256;
const SMALLEST_WINDOW: u32 = 1024;
/// With this limit, the windows of all streams together fit into the greatest window of a
/// connection, 2³¹ - 1.
const GREATEST_WINDOW: u32 = 4 << 20;

/// The settings of a [`Client`](super::Client). Limits on connections apply to each host on each
/// loop. A value out of range becomes the nearest value in the range.
///
/// | setting | default | range | what happens beyond it |
/// |---|---|---|---|
/// | [`version`](Self::version) | HTTP/1.1 | | |
/// | [`tls`](Self::tls) | none | | `https` hosts cannot be reached |
/// | [`connect_timeout`](Self::connect_timeout) | 5 s | any | [`ConnectTimeout`](super::ClientError::ConnectTimeout) |
/// | [`head_timeout`](Self::head_timeout) | 30 s | any, or `None` | [`HeadTimeout`](super::ClientError::HeadTimeout) |
/// | [`total_timeout`](Self::total_timeout) | `None` | any | [`TotalTimeout`](super::ClientError::TotalTimeout), also while the body is read |
/// | [`max_connections`](Self::max_connections) | 64 | 1 and more | requests wait |
/// | [`max_waiting`](Self::max_waiting) | 1,024 | any | [`QueueFull`](super::ClientError::QueueFull) |
/// | [`queue_timeout`](Self::queue_timeout) | 5 s | any | [`QueueTimeout`](super::ClientError::QueueTimeout) |
/// | [`max_idle`](Self::max_idle) | 32 | any | the connection is closed |
/// | [`idle_timeout`](Self::idle_timeout) | 30 s | 1 ms and more | the connection is closed |
/// | [`max_header_size`](Self::max_header_size) | 64 KiB | 8 KiB and more | [`HeaderTooLarge`](super::ClientError::HeaderTooLarge) (HTTP/2: [`Exchange`](super::ClientError::Exchange)) |
/// | [`max_headers`](Self::max_headers) | 100 | 1 to 24,576 | HTTP/1.1: [`HeaderTooLarge`](super::ClientError::HeaderTooLarge); HTTP/2: no limit but `max_header_size` |
/// | [`stream_window`](Self::stream_window) | 1 MiB | 1 KiB to 4 MiB | HTTP/2: the server waits until the response is read |
/// | [`retries`](Self::retries) | 2 | any | the request fails |
#[derive(Debug, Clone)]
#[must_use = "call `build`"]
pub struct ClientBuilder {
    pub(super) version: HttpVersion,
    pub(super) tls: Option<ClientTls>,
    pub(super) connect_timeout: Duration,
    pub(super) head_timeout: Option<Duration>,
    pub(super) total_timeout: Option<Duration>,
    pub(super) max_connections: usize,
    pub(super) max_waiting: usize,
    pub(super) queue_timeout: Duration,
    pub(super) max_idle: usize,
    pub(super) idle_timeout: Duration,
    pub(super) max_header_size: usize,
    pub(super) max_headers: usize,
    pub(super) stream_window: u32,
    pub(super) retries: u32,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            version: HttpVersion::Http1,
            tls: None,
            connect_timeout: Duration::from_secs(5),
            head_timeout: Some(Duration::from_secs(30)),
            total_timeout: None,
            max_connections: 64,
            max_waiting: 1024,
            queue_timeout: Duration::from_secs(5),
            max_idle: 32,
            idle_timeout: Duration::from_secs(30),
            max_header_size: 64 * 1024,
            max_headers: HYPERS_MAX_HEADERS,
            stream_window: 1 << 20,
            retries: 2,
        }
    }
}

impl ClientBuilder {
    /// Sets the HTTP version of [`Client::send`](super::Client::send), which takes the host from
    /// the request's URI. A [`Target`](super::Target) has its own version.
    pub fn version(mut self, version: HttpVersion) -> Self {
        self.version = version;
        self
    }

    /// Sets how to connect to TLS hosts, including which certificates to trust. With `None` a
    /// request to a TLS host fails. The client ignores the protocols of these settings, and offers
    /// the version of the host.
    pub fn tls(mut self, tls: impl Into<Option<ClientTls>>) -> Self {
        self.tls = tls.into();
        self
    }

    /// Sets how long a connection attempt may take: the lookup of the name, all its addresses, and
    /// the TLS handshake.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long it may take from the call until the head of the response has arrived,
    /// including the wait for a connection and all retries. `None` disables the limit.
    pub fn head_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.head_timeout = timeout.into();
        self
    }

    /// Sets how long it may take from the call until the end of the response's body. `None`
    /// disables the limit.
    pub fn total_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.total_timeout = timeout.into();
        self
    }

    /// Sets how many connections to a host may be open at a time. An HTTP/2 connection that accepts
    /// no more requests, and only finishes its current ones, does not count. There are at most as
    /// many, or 16 if that is more, that take no more requests because their server was silent for
    /// at least a second when a request was cancelled, and is still silent.
    ///
    /// A request over HTTP/1.1 that was begun and is not polled any more (another branch of a
    /// `select!` runs, for example) keeps its connection. If all connections are kept so, further
    /// requests wait for as long as [`queue_timeout`](Self::queue_timeout) allows.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections.max(1);
        self
    }

    /// Sets how many requests may wait for a connection to a host. A retry may wait even beyond
    /// this number.
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.max_waiting = requests;
        self
    }

    /// Sets how long a request may wait for a connection to a host whose connections are all in
    /// use.
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.queue_timeout = timeout;
        self
    }

    /// Sets how many idle HTTP/1.1 connections to a host are kept.
    pub fn max_idle(mut self, connections: usize) -> Self {
        self.max_idle = connections;
        self
    }

    /// Sets how long an idle connection is kept, at least 1 ms. It should be shorter than the
    /// server's own limit, so that requests seldom use a connection that the server is closing.
    ///
    /// A server may answer a request before it has read the whole request. The rest of the request
    /// must then be sent within the same time after the response. Otherwise the connection is
    /// closed. Over HTTP/2 this time begins again with each piece of the request's body, and with
    /// the end of each response of the connection.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout.clamp(SHORTEST_TIMEOUT, LONGEST_TIMEOUT);
        self
    }

    /// Sets how large a response's header may be, in bytes, counted like a request's in
    /// [`Limits::max_header_size`](crate::Limits::max_header_size).
    ///
    /// With HTTP/1 this also bounds a connection's read buffer. If a server sends 1xx responses
    /// first, these and the header together may have four times this size. Beyond that the
    /// connection is closed.
    pub fn max_header_size(mut self, bytes: usize) -> Self {
        self.max_header_size = bytes.max(SMALLEST_HEADER_LIMIT);
        self
    }

    /// Sets how many fields the header of an HTTP/1.1 response may have. With any number but the
    /// default, each response needs two allocations, each of 32 bytes times `fields`.
    pub fn max_headers(mut self, fields: usize) -> Self {
        self.max_headers = fields.clamp(1, GREATEST_HEADERS_LIMIT);
        self
    }

    /// Sets how many bytes of an HTTP/2 response the server may send before the program reads them.
    ///
    /// An unread response does not delay the other responses of its connection: a connection
    /// carries at most 256 requests at a time, and its own window is at least 256 times this size.
    /// So an HTTP/2 connection buffers at most 256 times this size.
    ///
    /// A small DATA frame needs more memory than its bytes. So for each unread frame of fewer than
    /// 256 bytes, the client counts the difference to 256 bytes. If the sum of these differences
    /// exceeds 256 MiB, or 128 times this size if that is more, the connection ends. By default
    /// this happens after about 1,000,000 tiny messages that nobody reads. It also ends if the
    /// server has sent more than 100 empty frames that do not end their streams, in all.
    pub fn stream_window(mut self, bytes: u32) -> Self {
        self.stream_window = bytes.clamp(SMALLEST_WINDOW, GREATEST_WINDOW);
        self
    }

    /// Sets how often a request may be retried, if [that is safe](super#what-is-sent-again). If a
    /// pooled connection turns out to have ended before any byte of the request was sent, that does
    /// not count as a retry.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }
}

/// The counters of a client.
///
/// # Threads
/// The client's loop writes them, and any thread may read them. Each number is exact, but two
/// numbers are not read at the same instant.
#[derive(Debug, Default)]
pub struct ClientCounts {
    opened: AtomicU64,
    failed: AtomicU64,
    reused: AtomicU64,
    retried: AtomicU64,
    waited: AtomicU64,
    refused: AtomicU64,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $read:ident, $add:ident;)*) => {
        impl ClientCounts {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $read(&self) -> u64 {
                    self.$read.load(Ordering::Relaxed)
                }

                pub(super) fn $add(&self) {
                    // There is only one writer, so no atomic addition is needed.
                    self.$read.store(self.$read.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                }
            )*
        }
    };
}

counts! {
    /// Returns how many connections were made.
    opened, add_opened;
    /// Returns how many connections could not be made.
    failed, add_failed;
    /// Returns how many requests got a connection that had been used before.
    reused, add_reused;
    /// Returns how often a request was sent again. A request that was sent three times counts
    /// twice.
    retried, add_retried;
    /// Returns how many requests waited for a connection.
    waited, add_waited;
    /// Returns how many requests were refused because too many already waited.
    refused, add_refused;
}
