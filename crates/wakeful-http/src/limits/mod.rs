//! The limits of a server, and its answer beyond each of them.
//!
//! [`Limits`] has the settings. `peers` is the table of clients, `frames` reads the headers of
//! HTTP/2 frames, `flood` decides how many of them are too many. `connection::deadlines` says what
//! a connection does about all that, and when. Every limit that is reached is counted by its
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
/// The most fields that `http::HeaderMap` can hold. With HTTP/1, hyper allocates room for this many
/// in each request.
const GREATEST_HEADERS_LIMIT: usize = 24_576;
/// The longest time that Linux accepts (`TCP_KEEPIDLE`).
const LONGEST_KEEPALIVE: Duration = Duration::from_secs(32_767);
/// How many probes a silent peer gets, a third of `keepalive` apart.
pub(crate) const PROBES: u32 = 3;

/// The limits of a server, for [`Server::limits`](crate::Server::limits).
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
/// `None` disables a limit. A limit of 0 is a real limit: with `max_body(0)` each request with a
/// body is refused. A value out of range becomes the nearest value in the range, and a time of more
/// than 30 years (`Duration::MAX`) becomes 30 years.
///
/// | setting | default | range | beyond it |
/// |---|---|---|---|
/// | [`header_timeout`](Self::header_timeout) | 30 s | 1 ms and more | 408 and close, if a part of the header has arrived; else close. HTTP/2: close, after GOAWAY (ENHANCE_YOUR_CALM) if a part of the header has arrived |
/// | [`idle_timeout`](Self::idle_timeout) | 75 s | 1 ms and more | close. HTTP/2: GOAWAY (NO_ERROR), and close |
/// | [`body_timeout`](Self::body_timeout) | 30 s | 1 ms and more | 408 and close, or, after the response's head, abort (HTTP/2: the stream) |
/// | [`request_timeout`](Self::request_timeout) | none | 1 ms and more | 503 and close, or, after the response's head, abort (HTTP/2: the stream) |
/// | [`keepalive`](Self::keepalive) | 75 s | 1 s to 32,767 s | TCP probes a silent peer; if the peer does not answer for the same time again, the connection is closed |
/// | [`min_rate`](Self::min_rate) | 240 bytes/s over 10 s | [`MinRate`] | reading a body: like `body_timeout`; writing a response: the connection is aborted (HTTP/2: only the stream, if the stream's own window is used up; what waits for the connection counts together) |
/// | [`max_connections`](Self::max_connections) | none: as many as the process has [descriptors](crate::Server::descriptors) for | 1 and more; with 0 the server does not start | further connections wait in the backlog; while they wait, idle ones are closed |
/// | [`when_full`](Self::when_full) | [`WhenFull::Wait`] | [`WhenFull`] | what happens to a connection beyond `max_connections` |
/// | [`max_connections_per_peer`](Self::max_connections_per_peer) | none | any | 503 and close, at once; TLS: close |
/// | [`max_requests`](Self::max_requests) | none | any | 503 with `retry-after` |
/// | [`peer_rate`](Self::peer_rate) | none | [`PeerRate`] | 429 with `retry-after` |
/// | [`max_header_size`](Self::max_header_size) | 64 KiB | 8 KiB and more | 431 (HTTP/1.1: and close); HTTP/2 beyond four times as much: GOAWAY (ENHANCE_YOUR_CALM) |
/// | [`max_headers`](Self::max_headers) | 100 | 1 to 24,576 | 431 (HTTP/1.1: and close) |
/// | [`max_uri`](Self::max_uri) | 65,534 | 1 to 65,534 | 414 |
/// | [`max_body`](Self::max_body) | none | any | 413 and close: at once if `content-length` is too large (HTTP/2: a length of 20 digits or more is malformed, and a stream error), else when more bytes than that have arrived; after the response's head, the response's body is cut off |
/// | [`ambiguous_length`](Self::ambiguous_length) | [`AmbiguousLength::Resolve`] | [`AmbiguousLength`] | 400 and close |
/// | [`max_requests_per_connection`](Self::max_requests_per_connection) | none | 1 and more | the last response says `connection: close` (HTTP/2: GOAWAY) |
/// | [`max_age`](Self::max_age) | none | [`MaxAge`] | the next response says `connection: close` (HTTP/2: GOAWAY); after its grace period, abort |
/// | [`grpc_calls`](Self::grpc_calls) | [`GrpcCalls::Limited`] | [`GrpcCalls`] | |
/// | [`http2`](Self::http2) | [`Http2Limits::default`] | [`Http2Limits`] | [a table of its own](Http2Limits) |
///
/// These checks are always on: a malformed HTTP/1 request, or an HTTP/1.1 request without a `Host`
/// header or with several, gets 400, and the connection closes. The server counts each
/// [`Refusal`](crate::Refusal).
///
/// When the kernel knows that a client is gone, the server notices within a second or two, and
/// cancels the request. This also works while the response sends nothing (server-sent events, a
/// long poll). But if an HTTP/1.1 client just closes its TCP connection, the kernel does not know
/// whether the client has ended only its sending side and still waits for the response. It learns
/// this when the server next sends something, or when `keepalive` probes the connection.
///
/// A peer is an IPv4 address, or the /64 network of an IPv6 address. Clients of Unix sockets are
/// not peers. All clients of a proxy are one peer.
///
/// Each connection has one timer, and a request needs none. The timer checks each deadline about
/// four times within its limit, so a request may take up to a quarter longer than its limit.
/// `body_timeout`, `min_rate` (for a single request), `request_timeout` and `max_body` do not apply
/// to connections after a `CONNECT` or an upgrade. The first three do not apply to gRPC calls
/// either, if `grpc_calls` exempts them. Over HTTP/2, `min_rate` applies to what an upgraded stream
/// has not sent yet when its [`Upgraded`](crate::upgrade::Upgraded) is dropped.
///
/// When an HTTP/1.1 connection moves to another loop, it keeps its age and its number of requests,
/// and still counts towards `max_connections_per_peer`. The header timeout and the idle timeout
/// start again.
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

/// What happens to an HTTP/1 request with both `Content-Length` and `Transfer-Encoding`. A proxy
/// and a server may disagree on where such a request ends, so an attacker could smuggle requests
/// past the proxy. RFC 9112 (6.1) lets the server choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AmbiguousLength {
    /// The transfer encoding applies, the service does not see the length, and the connection
    /// closes after the response. This is enough if the server does not forward the request.
    #[default]
    Resolve,
    /// The request gets 400, the service does not see it, and the connection closes. Use this for
    /// proxies. It costs one more copy of all received HTTP/1 bytes, and a second scan of heads.
    Refuse,
}

/// Whether the time limits of requests (`body_timeout`, `min_rate` for a single request,
/// `request_timeout`) apply to gRPC calls. A call is any request whose content type begins with
/// `application/grpc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GrpcCalls {
    /// The limits apply, so no client can bypass them by its content type. The server ends a stream
    /// if its client, which has not finished sending, is silent for too long or sends too little,
    /// or if its client pauses for too long while it reads. This suits unary calls and server
    /// streams.
    #[default]
    Limited,
    /// The limits do not apply: a stream may be silent for any time, and has its own deadline
    /// (`grpc-timeout`). Choose this only if clients stream, and may be silent, send little, or
    /// pause while they read. Any client can then bypass those limits, on all paths, by its content
    /// type. The limits on sizes, numbers and rates still apply.
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
            // The rate of Kestrel, whose grace period is half as long.
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
    /// Returns the default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long a client may take for a request's header. The time counts from the header's
    /// first byte, or, for the first request, from the accept. With TLS it counts from the end of
    /// the handshake, which has a limit of its own.
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.header_timeout = timeout;
        self
    }

    /// Sets how long a connection may be open without a request.
    ///
    /// A request whose response is complete does not count, even if a task still holds the
    /// request's body. Such a task may continue to read the body, as long as some bytes of it
    /// arrive within this time. Otherwise the connection closes, because hyper reads no further
    /// request while a task holds the body (or has leaked it with [`std::mem::forget`]).
    ///
    /// A response is complete when the kernel has all of it. Until then
    /// [`min_rate`](Self::min_rate) applies, also to the end of a response that waits in TLS.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Sets how long the server waits for the next bytes of a body. With `None`, only
    /// [`min_rate`](Self::min_rate) applies.
    pub fn body_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.body_timeout = timeout.into();
        self
    }

    /// Sets how long a request may take, from its header to its response's end. With HTTP/1.1 the
    /// response ends when the kernel has all of it. With HTTP/2 it ends for this limit when all of
    /// it is in the send buffer: then [`min_rate`](Self::min_rate) applies.
    pub fn request_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.request_timeout = timeout.into();
        self
    }

    /// Sets how long a peer may be silent before TCP probes it, in whole seconds. Without probes,
    /// the connection of a vanished peer stays open for ever if the server sends nothing on it, as
    /// a silent WebSocket or gRPC stream does. The option is set on the listeners, and connections
    /// inherit it. `None` does not change the listeners.
    pub fn keepalive(mut self, idle: impl Into<Option<Duration>>) -> Self {
        self.keepalive = idle.into();
        self
    }

    /// Sets how slowly a client may send a body or read a response. With `None`, a client that does
    /// not read a response to its end keeps its connection, also over TLS.
    pub fn min_rate(mut self, rate: impl Into<Option<MinRate>>) -> Self {
        self.min_rate = rate.into();
        self
    }

    /// Sets how many connections may be open at a time, on all loops together. With `None` the
    /// limit is the number that the process has [descriptors](crate::Server::descriptors) for. A
    /// server with a limit of 0 does not start.
    ///
    /// If further connections wait for longer than 50 ms, the server closes idle ones to make room,
    /// and counts [`Refusal::GaveWay`](crate::Refusal::GaveWay) for each. It closes them in the
    /// same way as in a drain, so the first one is closed 200 ms later. Each loop begins with the
    /// connection that has been idle longest, even if that is a short time. If there are not enough
    /// idle connections, HTTP/1.1 connections that have had many requests close after their
    /// response. A connection that has not sent a request yet stays open for
    /// [`header_timeout`](Self::header_timeout), and an HTTP/2 connection stays open while requests
    /// are in flight.
    pub fn max_connections(mut self, connections: impl Into<Option<usize>>) -> Self {
        self.max_connections = connections.into();
        self
    }

    /// Sets what happens to a connection beyond [`max_connections`](Self::max_connections).
    ///
    /// [`WhenFull::Replace`] accepts it, aborts another connection at once, and counts
    /// [`Refusal::GaveWay`](crate::Refusal::GaveWay). It aborts the connection that has been silent
    /// longest, if that is at least 50 ms. A connection is silent while no request is in flight,
    /// even if a header has begun. An upgraded connection never counts as silent. If no connection
    /// has been silent for 50 ms, the server aborts the one that has been open longest. It first
    /// reads the bytes that have already arrived on that connection. Use this for a small number of
    /// short connections, such as health checks, so that silent connections cannot keep them out.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Sets how many connections one peer may have.
    pub fn max_connections_per_peer(mut self, connections: impl Into<Option<u32>>) -> Self {
        self.max_connections_per_peer = connections.into();
        self
    }

    /// Sets how many requests may be in flight at a time, on all loops together. With this limit
    /// each request changes a counter that all loops share.
    pub fn max_requests(mut self, requests: impl Into<Option<usize>>) -> Self {
        self.max_requests = requests.into();
        self
    }

    /// Sets how many requests per second one peer may send.
    pub fn peer_rate(mut self, rate: impl Into<Option<PeerRate>>) -> Self {
        self.peer_rate = rate.into();
        self
    }

    /// Sets how large a request's header may be, in bytes.
    ///
    /// For HTTP/1 the received bytes count: the request line, the fields, and their line ends,
    /// including the final empty line. The trailers of a chunked body may have the same size again.
    /// The limit also bounds the connection's read buffer. For HTTP/2 the uncompressed size counts
    /// (RFC 9113, 6.5.2): for each field its name, its value and 32 bytes, including pseudo-header
    /// fields such as `:method`. This size must be less than the limit. The server announces the
    /// limit (SETTINGS_MAX_HEADER_LIST_SIZE). Trailers count separately.
    pub fn max_header_size(mut self, bytes: usize) -> Self {
        self.max_header_size = bytes;
        self
    }

    /// Sets how many fields a header may have.
    pub fn max_headers(mut self, fields: usize) -> Self {
        self.max_headers = fields;
        self
    }

    /// Sets how long path and query together may be, in bytes.
    pub fn max_uri(mut self, bytes: usize) -> Self {
        self.max_uri = bytes;
        self
    }

    /// Sets how large a request's body may be, in bytes.
    pub fn max_body(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.max_body = bytes.into();
        self
    }

    /// Sets what happens to an HTTP/1 request with both `Content-Length` and `Transfer-Encoding`.
    pub fn ambiguous_length(mut self, requests: AmbiguousLength) -> Self {
        self.ambiguous_length = requests;
        self
    }

    /// Sets how many requests the server accepts on one connection. 0 becomes 1.
    pub fn max_requests_per_connection(mut self, requests: impl Into<Option<u64>>) -> Self {
        self.max_requests_per_connection = requests.into();
        self
    }

    /// Sets how long a connection may stay open, even if it is busy.
    pub fn max_age(mut self, age: impl Into<Option<MaxAge>>) -> Self {
        self.max_age = age.into();
        self
    }

    /// Sets whether the time limits of requests apply to gRPC calls.
    pub fn grpc_calls(mut self, calls: GrpcCalls) -> Self {
        self.grpc_calls = calls;
        self
    }

    /// Sets the limits that only HTTP/2 has.
    pub fn http2(mut self, limits: Http2Limits) -> Self {
        self.http2 = limits;
        self
    }

    /// Returns [`max_connections`](Self::max_connections), if it is set. The services of this
    /// project divide the process's descriptors by it.
    #[doc(hidden)]
    #[must_use]
    pub fn given_max_connections(&self) -> Option<usize> {
        self.max_connections
    }

    /// The same limits, with each number in its range.
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

    /// How often a busy connection is checked: about four times within the shortest of its limits,
    /// and at least once a second.
    pub(crate) fn tick(&self) -> Option<Duration> {
        let window = self.min_rate.map(|rate| rate.window);
        let shortest = [self.body_timeout, self.request_timeout, window];
        let shortest = shortest.into_iter().flatten().min()?;
        Some((shortest / 4).min(Duration::from_secs(1)))
    }
}
