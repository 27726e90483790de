//! What a server bounds, and what it answers beyond each bound.
//!
//! [`Limits`] has the settings. `peers` is the table of clients, `frames` what is seen of HTTP/2's
//! frames, `flood` how many of them are too many; what a connection does about all that, and when,
//! is in `connection::deadlines`. Every limit that strikes is counted by its
//! [`Refusal`](crate::Refusal).

pub(crate) mod flood;
pub(crate) mod frames;
mod http2;
mod max_age;
pub(crate) mod peers;
pub(crate) mod rate_meter;
mod rate_settings;
mod timeouts;

use std::time::Duration;

use wakeful::accept::WhenFull;

pub use http2::Http2Limits;
pub use max_age::MaxAge;
pub use rate_settings::{MinRate, PeerRate};
pub(crate) use timeouts::{LONGEST_TIMEOUT, SHORTEST_TIMEOUT};

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

/// What a server bounds: [`Server::limits`](crate::Server::limits).
///
/// ```
/// use std::time::Duration;
/// use wakeful_http::Limits;
///
/// let limits = Limits::new()
///     .max_connections(10_000)
///     .max_body(1 << 20)
///     .request_timeout(Duration::from_secs(5))
///     .keepalive(None);
/// ```
///
/// `None` switches a limit off. A limit of 0 means what it says: with `max_body(0)` a request may
/// have no body. What is out of its range becomes the nearest in it, and a time beyond 30 years
/// (`Duration::MAX`) is 30 years.
///
/// | setting | default | range | beyond it |
/// |---|---|---|---|
/// | [`header_timeout`](Self::header_timeout) | 30 s | 1 ms and more | 408 and close, if a part of the header came; else close. HTTP/2: GOAWAY (ENHANCE_YOUR_CALM) in mid-header, and close |
/// | [`idle_timeout`](Self::idle_timeout) | 75 s | 1 ms and more | close. HTTP/2: GOAWAY (NO_ERROR), and close |
/// | [`body_timeout`](Self::body_timeout) | 30 s | 1 ms and more | 408 and close, or, after the response's head, abort (HTTP/2: the stream) |
/// | [`request_timeout`](Self::request_timeout) | none | 1 ms and more | 503 and close, or, after the response's head, abort (HTTP/2: the stream) |
/// | [`keepalive`](Self::keepalive) | 75 s | 1 s to 32,767 s | a silent peer is probed by TCP; if it does not answer for as long again, the connection is gone |
/// | [`min_rate`](Self::min_rate) | 240 bytes/s over 10 s | [`MinRate`] | reading a body: as `body_timeout`; writing a response: the connection is aborted (HTTP/2: the stream, if only that has no room) |
/// | [`max_connections`](Self::max_connections) | none: as many as the process has [descriptors](crate::Server::descriptors) for | 1 and more; the server does not start with 0 | further ones wait in the backlog; while they wait, idle ones close |
/// | [`when_full`](Self::when_full) | [`WhenFull::Wait`] | [`WhenFull`] | what becomes of a connection beyond `max_connections` |
/// | [`max_connections_per_peer`](Self::max_connections_per_peer) | none | any | 503 and close, at once; by TLS: close |
/// | [`max_requests`](Self::max_requests) | none | any | 503 with `retry-after` |
/// | [`peer_rate`](Self::peer_rate) | none | [`PeerRate`] | 429 with `retry-after` |
/// | [`max_header_size`](Self::max_header_size) | 64 KiB | 8 KiB and more | 431 (HTTP/1.1: and close); HTTP/2 beyond four times as much: GOAWAY (ENHANCE_YOUR_CALM) |
/// | [`max_headers`](Self::max_headers) | 100 | 1 to 24,576 | 431 (HTTP/1.1: and close) |
/// | [`max_uri`](Self::max_uri) | 65,534 | 1 to 65,534 | 414 |
/// | [`max_body`](Self::max_body) | none | any | 413 and close, by `content-length` at once (HTTP/2: one of 20 digits or more is malformed, and an error of its stream), else as soon as so much has come; after the response's head, its body is cut off |
/// | [`ambiguous_length`](Self::ambiguous_length) | [`AmbiguousLength::Resolve`] | [`AmbiguousLength`] | 400 and close |
/// | [`max_requests_per_connection`](Self::max_requests_per_connection) | none | 1 and more | the last response says `connection: close` (HTTP/2: GOAWAY) |
/// | [`max_age`](Self::max_age) | none | [`MaxAge`] | the next response says `connection: close` (HTTP/2: GOAWAY); after the grace, abort |
/// | [`grpc_calls`](Self::grpc_calls) | [`GrpcCalls::Limited`] | [`GrpcCalls`] | |
/// | [`http2`](Self::http2) | [`Http2Limits::default`] | [`Http2Limits`] | [a table of its own](Http2Limits) |
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
#[must_use = "a setter returns the changed limits"]
pub struct Limits {
    pub(crate) header_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) body_timeout: Option<Duration>,
    pub(crate) request_timeout: Option<Duration>,
    pub(crate) keepalive: Option<Duration>,
    pub(crate) min_rate: Option<MinRate>,
    pub(crate) max_connections: Option<usize>,
    pub(crate) when_full: WhenFull,
    pub(crate) max_connections_per_peer: Option<u32>,
    pub(crate) max_requests: Option<usize>,
    pub(crate) peer_rate: Option<PeerRate>,
    pub(crate) max_header_size: usize,
    pub(crate) max_headers: usize,
    pub(crate) max_uri: usize,
    pub(crate) max_body: Option<u64>,
    pub(crate) ambiguous_length: AmbiguousLength,
    pub(crate) max_requests_per_connection: Option<u64>,
    pub(crate) max_age: Option<MaxAge>,
    pub(crate) grpc_calls: GrpcCalls,
    pub(crate) http2: Http2Limits,
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

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Some(Duration::from_secs(30)),
            request_timeout: None,
            keepalive: Some(Duration::from_secs(75)),
            // Kestrel's rate; its grace is half as long.
            min_rate: Some(MinRate::new(240, Duration::from_secs(10))),
            max_connections: None,
            when_full: WhenFull::default(),
            max_connections_per_peer: None,
            max_requests: None,
            peer_rate: None,
            max_header_size: 64 * 1024,
            max_headers: 100,
            max_uri: GREATEST_URI_LIMIT,
            max_body: None,
            ambiguous_length: AmbiguousLength::default(),
            max_requests_per_connection: None,
            max_age: None,
            grpc_calls: GrpcCalls::default(),
            http2: Http2Limits::default(),
        }
    }
}

impl Limits {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long a client may take for a request's header, from its first byte on; for the
    /// first one, from the connection on.
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.header_timeout = timeout;
        self
    }

    /// Sets how long a connection may be open without a request.
    ///
    /// A request whose response is over counts as none, though somebody still holds its body: a
    /// task that reads it on behalf of its handler may do so while some of it comes within this
    /// time. Otherwise the connection closes, because hyper reads no other request before the end
    /// of a body that somebody has (or has forgotten, by [`std::mem::forget`]).
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Sets how long nothing may come of a body that is waited for. `None`: no limit but
    /// [`min_rate`](Self::min_rate).
    pub fn body_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.body_timeout = timeout.into();
        self
    }

    /// Sets how long a request may take, from its header to its response's end. `None`: no limit.
    pub fn request_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.request_timeout = timeout.into();
        self
    }

    /// Sets after how long a silent peer is probed, in whole seconds. Without probes, a peer that
    /// has vanished keeps its connection for ever where nothing is to be sent to it, as with
    /// WebSockets and streams of gRPC. Set on the listeners, whose connections inherit it; `None`
    /// leaves them as they are.
    pub fn keepalive(mut self, idle: impl Into<Option<Duration>>) -> Self {
        self.keepalive = idle.into();
        self
    }

    /// Sets how slow a client may be. `None`: as slow as it likes.
    pub fn min_rate(mut self, rate: impl Into<Option<MinRate>>) -> Self {
        self.min_rate = rate.into();
        self
    }

    /// Sets how many connections are open at a time, on all loops together. `None`: as many as the
    /// process has [descriptors](crate::Server::descriptors) for. A server with a limit of 0 does
    /// not start.
    ///
    /// While further connections wait for longer than 50 ms, the server closes idle ones in their
    /// place, as at a drain, and counts [`Refusal::GaveWay`](crate::Refusal::GaveWay) for each: on
    /// each loop first the one that has been idle for longest, however short that is. The first
    /// place is free 200 ms later. Where there are not enough idle ones, HTTP/1.1 connections with
    /// many requests close behind their response. A connection that has had no request yet keeps
    /// its place for [`header_timeout`](Self::header_timeout), and one of HTTP/2 while requests are
    /// in flight on it.
    pub fn max_connections(mut self, connections: impl Into<Option<usize>>) -> Self {
        self.max_connections = connections.into();
        self
    }

    /// Sets what becomes of a connection beyond [`max_connections`](Self::max_connections).
    ///
    /// [`WhenFull::Replace`] lets it in, and closes another one at once, as if it were aborted, and
    /// counts [`Refusal::GaveWay`](crate::Refusal::GaveWay): the one that has been silent for
    /// longest, if one has been for 50 ms (nothing is in flight on it, whether its header has begun
    /// or not), else the one that has been open for longest. What it has sent until then is read
    /// first. Connections that were upgraded count as silent. For a few short connections, as of
    /// health checks, which nobody is to keep out by connections that say nothing.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Sets how many connections one peer may have. `None`: no limit.
    pub fn max_connections_per_peer(mut self, connections: impl Into<Option<u32>>) -> Self {
        self.max_connections_per_peer = connections.into();
        self
    }

    /// Sets how many requests are in flight at a time, on all loops together. `None`: no limit.
    /// With this limit each request changes a number that all loops share.
    pub fn max_requests(mut self, requests: impl Into<Option<usize>>) -> Self {
        self.max_requests = requests.into();
        self
    }

    /// Sets how many requests a second one peer may send. `None`: no limit.
    pub fn peer_rate(mut self, rate: impl Into<Option<PeerRate>>) -> Self {
        self.peer_rate = rate.into();
        self
    }

    /// Sets how large a request's header may be, in bytes.
    ///
    /// HTTP/1 counts what came: the request line, the fields, and their line ends, up to the empty
    /// line and with it. The trailers of a chunked body may have as much again, and the
    /// connection's read buffer is bounded by as much. HTTP/2 counts what it means, however it was
    /// packed, as RFC 9113 (6.5.2) has it: for each field its name, its value and 32 bytes,
    /// `:method` and its like included. That has to stay below the limit; clients are told of it
    /// (SETTINGS_MAX_HEADER_LIST_SIZE), and trailers are counted by themselves.
    pub fn max_header_size(mut self, bytes: usize) -> Self {
        self.max_header_size = bytes;
        self
    }

    /// Sets how many fields a header may have.
    pub fn max_headers(mut self, fields: usize) -> Self {
        self.max_headers = fields;
        self
    }

    /// Sets how long path and query may be together, in bytes.
    pub fn max_uri(mut self, bytes: usize) -> Self {
        self.max_uri = bytes;
        self
    }

    /// Sets how large a request's body may be, in bytes. `None`: no limit.
    pub fn max_body(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.max_body = bytes.into();
        self
    }

    /// Sets what becomes of a request of HTTP/1 that has both `Content-Length` and
    /// `Transfer-Encoding`.
    pub fn ambiguous_length(mut self, requests: AmbiguousLength) -> Self {
        self.ambiguous_length = requests;
        self
    }

    /// Sets how many requests are taken from one connection. `None`: no limit. 0 is taken as 1.
    pub fn max_requests_per_connection(mut self, requests: impl Into<Option<u64>>) -> Self {
        self.max_requests_per_connection = requests.into();
        self
    }

    /// Sets how long a connection is kept, however busy it is. `None`: as long as it likes.
    pub fn max_age(mut self, age: impl Into<Option<MaxAge>>) -> Self {
        self.max_age = age.into();
        self
    }

    /// Sets whether calls of gRPC have the time limits of requests.
    pub fn grpc_calls(mut self, calls: GrpcCalls) -> Self {
        self.grpc_calls = calls;
        self
    }

    /// Sets the limits that only HTTP/2 has.
    pub fn http2(mut self, limits: Http2Limits) -> Self {
        self.http2 = limits;
        self
    }

    /// Whether [`max_connections`](Self::max_connections) is set. For the services of this project,
    /// which divide the process's descriptors by it.
    #[doc(hidden)]
    #[must_use]
    pub fn has_max_connections(&self) -> bool {
        self.max_connections.is_some()
    }

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
        self.min_rate = self.min_rate.map(MinRate::clamped);
        self.peer_rate = self.peer_rate.map(PeerRate::clamped);
        self.max_age = self.max_age.map(MaxAge::clamped);
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
