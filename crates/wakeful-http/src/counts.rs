//! The HTTP counters of a server, for each of its loops. Any thread can read them without stopping
//! a loop.
//!
//! Each number has one writer, its loop, so a count is a load and a store on a cache line that no
//! other loop writes.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $reason:literal,)*) => {
        /// The reason why a server refused a request, or ended a request or a connection.
        /// [`HttpCounts::refused`] counts them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[$doc])* $name,)*
        }

        impl Refusal {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the name of this reason in metrics and logs.
            #[must_use]
            pub fn reason(self) -> &'static str {
                match self {
                    $(Self::$name => $reason,)*
                }
            }
        }
    };
}

refusals! {
    /// A connection closed, or was reset, before a request arrived.
    NoRequest = "no_request",
    /// A TLS handshake failed or took too long: [`TlsCounts`](crate::tls::TlsCounts) says why.
    Tls = "tls",
    /// A request's header took too long.
    HeaderTimeout = "header_timeout",
    /// A connection had no request for too long.
    IdleTimeout = "idle_timeout",
    /// A connection was asked to close, because others waited:
    /// [`Limits::max_connections`](crate::Limits::max_connections), or a lack of descriptors.
    GaveWay = "gave_way",
    /// No more bytes of a request's body arrived in time.
    BodyTimeout = "body_timeout",
    /// A request took too long in total.
    RequestTimeout = "request_timeout",
    /// A request's body arrived too slowly.
    SlowRequest = "slow_request",
    /// A client read a response too slowly.
    SlowResponse = "slow_response",
    /// A peer had too many connections.
    PeerConnections = "peer_connections",
    /// A peer sent too many requests per second.
    PeerRate = "peer_rate",
    /// Too many requests were in flight.
    Requests = "requests",
    /// A [file](crate::files::ServeDir) could not be served, because the process could start no
    /// thread for it.
    NoThread = "no_thread",
    /// A [file](crate::files::ServeDir) could not be served, because [too
    /// many](crate::files::ServeDir::max_jobs) were being read.
    FileJobs = "file_jobs",
    /// A [file](crate::files::ServeDir) could not be served, because [too
    /// many](crate::files::ServeDir::max_open_files) were open for too long.
    OpenFiles = "open_files",
    /// A header was too large, or had too many fields.
    HeaderTooLarge = "header_too_large",
    /// A path was too long.
    UriTooLong = "uri_too_long",
    /// A body was too large.
    BodyTooLarge = "body_too_large",
    /// The received bytes are not HTTP/1.
    Malformed = "malformed",
    /// An HTTP/1 request lacks a required `Host` header, or has more than one.
    Host = "host",
    /// An HTTP/1 request has both `Content-Length` and `Transfer-Encoding`, and the server
    /// [refuses](crate::Limits::ambiguous_length) that.
    AmbiguousLength = "ambiguous_length",
    /// A connection was too old, and its requests in flight took longer than the grace period.
    MaxAge = "max_age",
    /// A frame, or the order of frames, violates HTTP/2.
    Http2Protocol = "http2_protocol",
    /// h2 refused a request before the service saw it: too many streams, a malformed header or one
    /// that is too large.
    Http2Refused = "http2_refused",
    /// A client did not answer a PING.
    Http2PingTimeout = "http2_ping_timeout",
    /// Too many SETTINGS frames.
    Http2SettingsFlood = "http2_settings_flood",
    /// Too many PING frames.
    Http2PingFlood = "http2_ping_flood",
    /// Too many streams were reset.
    Http2ResetFlood = "http2_reset_flood",
    /// Too many CONTINUATION frames.
    Http2ContinuationFlood = "http2_continuation_flood",
    /// Too many empty or nearly empty DATA frames.
    Http2EmptyDataFlood = "http2_empty_data_flood",
    /// Too many other useless frames: PRIORITY, WINDOW_UPDATE, unknown ones.
    Http2FrameFlood = "http2_frame_flood",
}

const CLASSES: usize = 5;

/// The HTTP counters of a [`Server`](crate::Server).
///
/// # Threads
/// `Send` and `Sync`. Each number is exact, but two numbers are not read at the same instant.
#[derive(Debug)]
pub struct HttpCounts {
    loops: Box<[CachePadded<LoopHttpCounts>]>,
}

/// The HTTP counters of one loop of a server.
#[derive(Debug)]
pub struct LoopHttpCounts {
    begun: AtomicU64,
    ended: AtomicU64,
    responses: [AtomicU64; CLASSES],
    refused: [AtomicU64; Refusal::ALL.len()],
}

impl HttpCounts {
    pub(crate) fn new(loops: usize) -> Self {
        let counts = || LoopHttpCounts {
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            responses: Default::default(),
            refused: [const { AtomicU64::new(0) }; Refusal::ALL.len()],
        };
        Self { loops: (0..loops).map(|_| CachePadded::new(counts())).collect() }
    }

    /// Returns the counters of each loop, in the order of the loops' numbers.
    pub fn loops(&self) -> impl ExactSizeIterator<Item = &LoopHttpCounts> {
        self.loops.iter().map(|counts| &**counts)
    }

    /// Returns the number of requests whose header has arrived since the start, including those
    /// that were then refused.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.loops().map(LoopHttpCounts::requests).sum()
    }

    /// Returns the number of requests whose response has not ended.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.loops().map(LoopHttpCounts::in_flight).sum()
    }

    /// Returns the number of responses of a status class from 1 to 5 (class 4 contains the statuses
    /// from 400 to 499). Returns 0 for any other class.
    #[must_use]
    pub fn responses(&self, class: u16) -> u64 {
        self.loops().map(|counts| counts.responses(class)).sum()
    }

    /// Returns how often the server refused or ended a request or a connection for this reason.
    #[must_use]
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.loops().map(|counts| counts.refused(refusal)).sum()
    }

    pub(crate) fn of(&self, number: usize) -> &LoopHttpCounts {
        &self.loops[number]
    }
}

impl LoopHttpCounts {
    /// Returns the number of requests on this loop, like [`HttpCounts::requests`].
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Returns the number of requests in flight on this loop, like [`HttpCounts::in_flight`].
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        // In this order the difference is never negative.
        let ended = self.ended.load(Ordering::Acquire);
        self.begun.load(Ordering::Relaxed).saturating_sub(ended)
    }

    /// Returns the number of responses of a class on this loop, like [`HttpCounts::responses`].
    #[must_use]
    pub fn responses(&self, class: u16) -> u64 {
        let counter = usize::from(class).checked_sub(1).and_then(|class| self.responses.get(class));
        counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// Returns the number of refusals on this loop, like [`HttpCounts::refused`].
    #[must_use]
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refused[refusal as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn request_begins(&self) {
        one_more(&self.begun);
    }

    pub(crate) fn request_ends(&self) {
        self.ended.store(self.ended.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    pub(crate) fn response(&self, status: http::StatusCode) {
        let class = usize::from(status.as_u16() / 100).wrapping_sub(1);
        if let Some(counter) = self.responses.get(class) {
            one_more(counter);
        }
    }

    pub(crate) fn refuse(&self, refusal: Refusal) {
        self.refuse_many(refusal, 1);
    }

    pub(crate) fn refuse_many(&self, refusal: Refusal, count: u64) {
        let counter = &self.refused[refusal as usize];
        counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

/// Adds one. There is only one writer.
fn one_more(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
