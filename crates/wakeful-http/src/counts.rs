//! What a server counts of HTTP, for each of its loops: read from any thread, without stopping one.
//!
//! Each number has one writer, its loop, so a count is a load and a store on a cache line that no
//! other loop writes.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $reason:literal,)*) => {
        /// Why a server refused something, or ended it: what [`HttpCounts::refused`] counts.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[$doc])* $name,)*
        }

        impl Refusal {
            /// Each of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name in metrics and logs.
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
    /// A connection closed, or was reset, before a request came.
    NoRequest = "no_request",
    /// A TLS handshake failed or took too long: [`TlsCounts`](crate::tls::TlsCounts) says why.
    Tls = "tls",
    /// A request's header took too long.
    HeaderTimeout = "header_timeout",
    /// A connection had no request for too long.
    IdleTimeout = "idle_timeout",
    /// A connection was asked to close, because further ones waited for a place:
    /// [`Limits::max_connections`](crate::Limits::max_connections), or a lack of descriptors.
    GaveWay = "gave_way",
    /// Nothing more came of a request's body.
    BodyTimeout = "body_timeout",
    /// A request took too long in all.
    RequestTimeout = "request_timeout",
    /// A request's body came too slowly.
    SlowRequest = "slow_request",
    /// A response was taken too slowly.
    SlowResponse = "slow_response",
    /// A peer had too many connections.
    PeerConnections = "peer_connections",
    /// A peer sent too many requests a second.
    PeerRate = "peer_rate",
    /// Too many requests were in flight.
    Requests = "requests",
    /// A [file](crate::files::ServeDir) could not be served, because the process could start no
    /// thread for it.
    NoThread = "no_thread",
    /// A [file](crate::files::ServeDir) could not be served, because [too
    /// many](crate::files::ServeDir::max_jobs) were being read.
    FileJobs = "file_jobs",
    /// A header was too large, or had too many fields.
    HeaderTooLarge = "header_too_large",
    /// A path was too long.
    UriTooLong = "uri_too_long",
    /// A body was too large.
    BodyTooLarge = "body_too_large",
    /// What came is not HTTP/1.
    Malformed = "malformed",
    /// A request of HTTP/1 has no `Host`, where it must have one, or more than one.
    Host = "host",
    /// A request of HTTP/1 has both `Content-Length` and `Transfer-Encoding`, where that is
    /// [refused](crate::Limits::ambiguous_length).
    AmbiguousLength = "ambiguous_length",
    /// A connection was too old, and what was in flight took longer than its grace.
    MaxAge = "max_age",
    /// A frame, or their order, is not HTTP/2.
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
    /// Too many DATA frames with nothing in them, or next to nothing.
    Http2EmptyDataFlood = "http2_empty_data_flood",
    /// Too many other frames without use: PRIORITY, WINDOW_UPDATE, unknown ones.
    Http2FrameFlood = "http2_frame_flood",
}

const CLASSES: usize = 5;

/// What a [`Server`](crate::Server) counts of HTTP.
///
/// *Threads*: `Send` and `Sync`. Each number is exact; two of them are not read at the same
/// instant.
#[derive(Debug)]
pub struct HttpCounts {
    loops: Box<[CachePadded<LoopHttpCounts>]>,
}

/// What one loop of a server counts of HTTP.
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

    /// Each loop's, in the order of the loops' numbers.
    pub fn loops(&self) -> impl ExactSizeIterator<Item = &LoopHttpCounts> {
        self.loops.iter().map(|counts| &**counts)
    }

    /// Requests whose header has come, since the start; with those that were refused then.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.loops().map(LoopHttpCounts::requests).sum()
    }

    /// Requests whose response has not ended.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.loops().map(LoopHttpCounts::in_flight).sum()
    }

    /// Responses of a class, 1 to 5, as 4 for 400 to 499. 0 for any other number.
    #[must_use]
    pub fn responses(&self, class: u16) -> u64 {
        self.loops().map(|counts| counts.responses(class)).sum()
    }

    /// How often it refused something, or ended it, for this reason.
    #[must_use]
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.loops().map(|counts| counts.refused(refusal)).sum()
    }

    pub(crate) fn of(&self, number: usize) -> &LoopHttpCounts {
        &self.loops[number]
    }
}

impl LoopHttpCounts {
    /// As [`HttpCounts::requests`], of this loop.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// As [`HttpCounts::in_flight`], of this loop.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        // In this order, so that it is never less than none.
        let ended = self.ended.load(Ordering::Acquire);
        self.begun.load(Ordering::Relaxed).saturating_sub(ended)
    }

    /// As [`HttpCounts::responses`], of this loop.
    #[must_use]
    pub fn responses(&self, class: u16) -> u64 {
        let counter = usize::from(class).checked_sub(1).and_then(|class| self.responses.get(class));
        counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// As [`HttpCounts::refused`], of this loop.
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

/// There is one writer.
fn one_more(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
