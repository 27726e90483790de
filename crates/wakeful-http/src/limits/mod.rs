//! What a server bounds, and what it answers beyond each bound.
//!
//! [`Limits`] has the settings. `peers` is the table of clients, `frames` what is seen of HTTP/2's
//! frames, `flood` how many of them are too many; what a connection does about all that, and when,
//! is in `connection::deadlines`. Every limit that strikes is counted by its
//! [`Refusal`](crate::Refusal).

pub(crate) mod flood;
pub(crate) mod frames;
mod http2;
pub(crate) mod peers;
pub(crate) mod rate;
mod timeouts;

use std::time::Duration;

pub use http2::Http2Limits;
pub(crate) use timeouts::LONGEST_TIMEOUT;
use timeouts::SHORTEST_TIMEOUT;

/// hyper's least; the defaults are larger.
const SMALLEST_HEADER_LIMIT: usize = 8 * 1024;
/// hyper's greatest.
const GREATEST_URI_LIMIT: usize = 65_534;
/// `http::HeaderMap` holds no more, and for HTTP/1 hyper has room for so many in each request.
const GREATEST_HEADERS_LIMIT: usize = 24_576;
/// The most that Linux takes (`TCP_KEEPIDLE`).
const LONGEST_KEEPALIVE: Duration = Duration::from_secs(32_767);
/// How many probes a silent peer gets, a third of `keepalive` apart.
pub(crate) const PROBES: u32 = 3;

/// What a server bounds: [`Server::limits`](crate::Server::limits). `None` is no limit, and so is 0
/// for what has no range; what is out of its range becomes the nearest in it, and a time beyond 30
/// years (`Duration::MAX`) is 30 years.
///
/// | setting | default | range | beyond it |
/// |---|---|---|---|
/// | `header_timeout` | 30 s | 1 ms and more | 408 and close, if a part of the header came; else close. HTTP/2: GOAWAY (ENHANCE_YOUR_CALM) in mid-header, and close |
/// | `idle_timeout` | 75 s | 1 ms and more | close. HTTP/2: GOAWAY (NO_ERROR), and close |
/// | `body_timeout` | 30 s | 1 ms and more | 408 and close, or, behind the response's head, abort (HTTP/2: the stream) |
/// | `request_timeout` | none | 1 ms and more | 503 and close, or, behind the response's head, abort (HTTP/2: the stream) |
/// | `keepalive` | 75 s | 1 s to 32,767 s | a silent peer is probed by TCP; if it does not answer for as long again, the connection is gone |
/// | `min_rate` | 240 bytes/s over 10 s | [`MinRate`] | reading a body: as `body_timeout`; writing a response: the connection is aborted (HTTP/2: the stream, if only that has no room) |
/// | `max_connections` | 0: as many as the process has [descriptors](crate::Server::descriptors) for | | further ones wait in the backlog |
/// | `max_connections_per_peer` | none | | 503 and close, at once; by TLS: close |
/// | `max_requests` | none | | 503 with `retry-after` |
/// | `peer_rate` | none | [`PeerRate`] | 429 with `retry-after` |
/// | `max_header_size` | 64 KiB | 8 KiB and more | 431 (HTTP/1.1: and close); HTTP/2 beyond four times as much: GOAWAY (ENHANCE_YOUR_CALM) |
/// | `max_headers` | 100 | 1 to 24,576 | 431 (HTTP/1.1: and close) |
/// | `max_uri` | 65,534 | 1 to 65,534 | 414 |
/// | `max_body` | none | | 413 and close, by `content-length` at once, else as soon as so much has come; behind the response's head, its body is cut off |
/// | `ambiguous_length` | [`AmbiguousLength::Resolve`] | [`AmbiguousLength`] | 400 and close |
/// | `max_requests_per_connection` | none | | the last response says `connection: close` (HTTP/2: GOAWAY) |
/// | `max_age` | none | [`MaxAge`] | the next response says `connection: close` (HTTP/2: GOAWAY); after the grace, abort |
/// | `grpc_calls` | [`GrpcCalls::Limited`] | [`GrpcCalls`] | |
/// | `http2` | | [`Http2Limits`] | |
///
/// Not limits, and always there: HTTP/1 that is malformed is answered 400 and closes, and so is
/// HTTP/1.1 without `Host`, or with two. Each [`Refusal`](crate::Refusal) is counted.
///
/// A client that is gone is noticed within a second or two, though its response has nothing to say
/// (server-sent events, a long poll): its request is given up. One of HTTP/1.1 that ends its side
/// may wait for its answer, and cannot be told from one that has closed, until `keepalive` asks for
/// it.
///
/// A peer is an IPv4 address, or the /64 network of an IPv6 address; clients of Unix sockets are
/// none. Behind a proxy all clients are one peer.
///
/// Deadlines are looked at about four times within each, by one timer for each connection: a
/// request may have a quarter more time than its limit says, and costs no timer. `body_timeout`,
/// `min_rate` (for bodies) and `request_timeout` do not apply to what `CONNECT` or an upgrade has
/// opened, nor does `max_body`; nor do these three to calls of gRPC, where `grpc_calls` says so.
///
/// When a connection of HTTP/1.1 moves to another loop, its age, its requests and its place in its
/// peer's account go along; header and idle timeout count anew.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// How long a client may take for a request's header, from its first byte on; for the first
    /// one, from the connection on.
    pub header_timeout: Duration,
    /// How long a connection may be open without a request.
    pub idle_timeout: Duration,
    /// How long nothing may come of a body that is waited for.
    pub body_timeout: Option<Duration>,
    /// How long a request may take, from its header to its response's end.
    pub request_timeout: Option<Duration>,
    /// After how long a silent peer is probed, in whole seconds: one that has vanished without a
    /// word would keep its connection for ever where nothing is to be sent to it, as with
    /// WebSockets and streams of gRPC. Set on the listeners, whose connections inherit it; `None`
    /// leaves them as they are.
    pub keepalive: Option<Duration>,
    /// How slow a client may be.
    pub min_rate: Option<MinRate>,
    /// How many connections are open at a time, on all loops together. 0 means as many as the
    /// process has [descriptors](crate::Server::descriptors) for.
    pub max_connections: usize,
    /// How many of them one peer may have.
    pub max_connections_per_peer: u32,
    /// How many requests are in flight at a time, on all loops together. With this limit each
    /// request changes a number that all loops share.
    pub max_requests: usize,
    /// How many requests a second one peer may send.
    pub peer_rate: Option<PeerRate>,
    /// How large a request's header may be, in bytes.
    ///
    /// HTTP/1 counts what came: the request line, the fields, and their line ends, up to the empty
    /// line and with it. The trailers of a chunked body may have as much again, and the
    /// connection's read buffer is bounded by as much. HTTP/2 counts what it means, however it was
    /// packed, as RFC 9113 (6.5.2) has it: for each field its name, its value and 32 bytes,
    /// `:method` and its like included. That has to stay below the limit; clients are told of it
    /// (SETTINGS_MAX_HEADER_LIST_SIZE), and trailers are counted by themselves.
    pub max_header_size: usize,
    /// How many fields a header may have.
    pub max_headers: usize,
    /// How long path and query may be, in bytes.
    pub max_uri: usize,
    /// How large a request's body may be, in bytes.
    pub max_body: u64,
    /// What becomes of a request of HTTP/1 that has both `Content-Length` and `Transfer-Encoding`.
    pub ambiguous_length: AmbiguousLength,
    /// How many requests are taken from one connection.
    pub max_requests_per_connection: u64,
    /// How long a connection is kept, however busy it is.
    pub max_age: Option<MaxAge>,
    /// Whether calls of gRPC have the time limits of requests.
    pub grpc_calls: GrpcCalls,
    /// What is HTTP/2's own.
    pub http2: Http2Limits,
}

/// What becomes of a request of HTTP/1 that has both `Content-Length` and `Transfer-Encoding`. Two
/// readers may see its end in two places, which is how requests are smuggled past a proxy; RFC 9112
/// (6.1) lets a server choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AmbiguousLength {
    /// The coding counts, the service does not see the length, and the connection closes behind the
    /// response. Enough where the server is the last to read the request.
    #[default]
    Resolve,
    /// It is answered 400, the service does not see it, and the connection closes. For proxies. All
    /// that is read of HTTP/1 is copied once more for it, and heads are scanned a second time.
    Refuse,
}

/// Whether calls of gRPC have the time limits of requests: `body_timeout`, `min_rate` for bodies,
/// `request_timeout`. A call is a request whose content type is `application/grpc…`, whoever says
/// so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GrpcCalls {
    /// They have. Right where nothing is gRPC: nobody escapes the limits by calling himself so. A
    /// stream on which the client is silent for long, or says little, ends early.
    #[default]
    Limited,
    /// They have not: a stream may be silent for as long as it likes, and has a deadline of its own
    /// (`grpc-timeout`). For servers of gRPC. Where other requests are served beside, any client
    /// can spare itself those limits, on all paths; sizes, numbers and rates hold on.
    Unlimited,
}

/// How slow a client may be: it is waited for, and sends (or takes) less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinRate {
    /// What it must do at least.
    pub bytes_per_second: u64,
    /// Averaged over so much time of waiting for it; 1 ms and more. As long is nothing said.
    pub window: Duration,
}

/// How many requests one peer may send: a bucket that fills at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerRate {
    /// 1 to a thousand million.
    pub requests_per_second: u32,
    /// How many may come at once; 1 and more.
    pub burst: u32,
}

/// How long a connection is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaxAge {
    /// From its accept on.
    pub age: Duration,
    /// Up to such a share of `age` is added, differently for each connection, so that those which
    /// came together do not go together: 0.0 to 1.0.
    pub jitter: f64,
    /// How long what is in flight then may go on.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Some(Duration::from_secs(30)),
            request_timeout: None,
            keepalive: Some(Duration::from_secs(75)),
            // Kestrel's rate; its grace is half as long.
            min_rate: Some(MinRate { bytes_per_second: 240, window: Duration::from_secs(10) }),
            max_connections: 0,
            max_connections_per_peer: 0,
            max_requests: 0,
            peer_rate: None,
            max_header_size: 64 * 1024,
            max_headers: 100,
            max_uri: GREATEST_URI_LIMIT,
            max_body: 0,
            ambiguous_length: AmbiguousLength::default(),
            max_requests_per_connection: 0,
            max_age: None,
            grpc_calls: GrpcCalls::default(),
            http2: Http2Limits::default(),
        }
    }
}

impl Limits {
    /// All in range.
    pub(crate) fn clamped(mut self) -> Self {
        let in_range = |timeout: Duration| timeout.clamp(SHORTEST_TIMEOUT, LONGEST_TIMEOUT);
        self.header_timeout = in_range(self.header_timeout);
        self.idle_timeout = in_range(self.idle_timeout);
        self.body_timeout = self.body_timeout.map(in_range);
        self.request_timeout = self.request_timeout.map(in_range);
        let seconds = |idle: Duration| idle.clamp(Duration::from_secs(1), LONGEST_KEEPALIVE);
        self.keepalive = self.keepalive.map(seconds);
        self.max_header_size = self.max_header_size.max(SMALLEST_HEADER_LIMIT);
        self.max_headers = self.max_headers.clamp(1, GREATEST_HEADERS_LIMIT);
        self.max_uri = self.max_uri.clamp(1, GREATEST_URI_LIMIT);
        if let Some(rate) = &mut self.min_rate {
            rate.window = in_range(rate.window);
        }
        if let Some(rate) = &mut self.peer_rate {
            rate.requests_per_second = rate.requests_per_second.clamp(1, 1_000_000_000);
            rate.burst = rate.burst.max(1);
        }
        if let Some(max_age) = &mut self.max_age {
            let jitter = max_age.jitter;
            max_age.jitter = if jitter.is_nan() { 0.0 } else { jitter.clamp(0.0, 1.0) };
            max_age.age = in_range(max_age.age);
            max_age.grace = max_age.grace.min(LONGEST_TIMEOUT);
        }
        self.http2 = self.http2.clamped();
        self
    }

    /// How often a busy connection is looked at: about four times within the shortest of its
    /// limits, and at most every second.
    pub(crate) fn tick(&self) -> Option<Duration> {
        let window = self.min_rate.map(|rate| rate.window);
        let shortest = [self.body_timeout, self.request_timeout, window];
        let shortest = shortest.into_iter().flatten().min()?;
        Some((shortest / 4).min(Duration::from_secs(1)))
    }
}
