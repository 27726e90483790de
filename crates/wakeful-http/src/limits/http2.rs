//! Limits that apply only to HTTP/2.

use std::time::Duration;

use super::timeouts::{LONGEST_TIMEOUT, SHORTEST_TIMEOUT};

/// The limits that only HTTP/2 has, for [`Limits::http2`](crate::Limits::http2). A value out of
/// range becomes the nearest value in the range.
///
/// | setting | default | range | beyond it |
/// |---|---|---|---|
/// | [`max_streams`](Self::max_streams) | 200 | 1 and more | the stream is refused (REFUSED_STREAM) |
/// | [`stream_window`](Self::stream_window) | 1 MiB | 1 KiB to 2³¹ - 1 | GOAWAY (FLOW_CONTROL_ERROR) |
/// | [`connection_window`](Self::connection_window) | 1 MiB | 65,535 to 2³¹ - 1 | GOAWAY (FLOW_CONTROL_ERROR) |
/// | [`max_frame_size`](Self::max_frame_size) | 16 KiB | 16,384 to 16,777,215 | GOAWAY (FRAME_SIZE_ERROR) |
/// | [`max_send_buffer`](Self::max_send_buffer) | 400 KiB | 1 to 2³² - 1 | the response's body is not polled |
/// | [`ping_interval`](Self::ping_interval) | none | 1 ms and more | |
/// | [`ping_timeout`](Self::ping_timeout) | 20 s | 1 ms and more | the connection is closed |
/// | [`max_pending_resets`](Self::max_pending_resets) | 1,000 | | GOAWAY (ENHANCE_YOUR_CALM) |
/// | [`max_error_resets`](Self::max_error_resets) | 1,024 | | GOAWAY (ENHANCE_YOUR_CALM) |
/// | [`max_resets_per_second`](Self::max_resets_per_second) | 200, and 5 times as many at once | 1 and more | GOAWAY (ENHANCE_YOUR_CALM) |
/// | [`max_control_frames_per_second`](Self::max_control_frames_per_second) | 250 | 1 and more | GOAWAY (ENHANCE_YOUR_CALM) |
///
/// A window is the number of bytes that a client may send before the handler reads them. The memory
/// for bodies is at most the connection window times the number of connections.
///
/// By default one body that its handler does not read can fill the connection window. The other
/// bodies of that connection then wait until the first one is read or its request ends. If a
/// gateway sends many users' uploads over one connection, set `stream_window` to a fraction of
/// `connection_window`.
///
/// The server also sends GOAWAY (ENHANCE_YOUR_CALM) in these cases:
/// * A header has too many CONTINUATION frames. The limit is the number of full frames
///   (`max_frame_size`) that `max_header_size` needs, plus a quarter, but at least five.
/// * The connection has received, in all, more than 100 empty DATA frames that do not end a stream.
/// * Too many small DATA frames are unread. For each unread frame of fewer than 256 bytes, the
///   server counts the difference to 256 bytes. The sum of these differences may be up to half of
///   `connection_window`. So about 2,000 tiny messages of WebSockets or gRPC streams may wait for
///   their handlers. If more must be able to wait, raise `connection_window`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a setter returns the changed limits"]
pub struct Http2Limits {
    pub(crate) max_streams: u32,
    pub(crate) stream_window: u32,
    pub(crate) connection_window: u32,
    pub(crate) max_frame_size: u32,
    pub(crate) max_send_buffer: usize,
    pub(crate) ping_interval: Option<Duration>,
    pub(crate) ping_timeout: Duration,
    pub(crate) max_pending_resets: usize,
    pub(crate) max_error_resets: usize,
    pub(crate) max_resets_per_second: u32,
    pub(crate) max_control_frames_per_second: u32,
}

impl Default for Http2Limits {
    fn default() -> Self {
        Self {
            max_streams: 200,
            stream_window: 1 << 20,
            connection_window: 1 << 20,
            max_frame_size: 16 * 1024,
            max_send_buffer: 400 * 1024,
            ping_interval: None,
            ping_timeout: Duration::from_secs(20),
            max_pending_resets: 1000,
            max_error_resets: 1024,
            max_resets_per_second: 200,
            max_control_frames_per_second: 250,
        }
    }
}

impl Http2Limits {
    /// Returns the default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many requests a connection may have in flight.
    pub fn max_streams(mut self, streams: u32) -> Self {
        self.max_streams = streams;
        self
    }

    /// Sets how many bytes of a body the client may send before they are read.
    pub fn stream_window(mut self, bytes: u32) -> Self {
        self.stream_window = bytes;
        self
    }

    /// Sets how many bytes of all bodies of a connection together the client may send before they
    /// are read.
    pub fn connection_window(mut self, bytes: u32) -> Self {
        self.connection_window = bytes;
        self
    }

    /// Sets the longest frame that the server accepts, in bytes.
    pub fn max_frame_size(mut self, bytes: u32) -> Self {
        self.max_frame_size = bytes;
        self
    }

    /// Sets how many bytes of a response the server buffers while the client does not read them,
    /// for each stream.
    ///
    /// Only the data counts, and each piece of a body takes about 300 bytes more. So pieces of
    /// fewer than 256 bytes that are ready one after the other are joined into frames of up to
    /// 4 KiB. Pieces that come one at a time, such as server-sent events, are not delayed, and not
    /// joined.
    pub fn max_send_buffer(mut self, bytes: usize) -> Self {
        self.max_send_buffer = bytes;
        self
    }

    /// Sets the interval at which the server sends a PING to the client. With `None` it sends none.
    pub fn ping_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.ping_interval = interval.into();
        self
    }

    /// Sets how long the client may take to answer a PING.
    pub fn ping_timeout(mut self, timeout: Duration) -> Self {
        self.ping_timeout = timeout;
        self
    }

    /// Sets how many reset streams of a connection may wait. A stream waits from the client's reset
    /// until the service notices the reset.
    ///
    /// A server that is late to read gets many frames in one piece. So an honest client that
    /// cancels its requests can have many that wait. The default is the number that a client may
    /// reset at once by default ([`max_resets_per_second`](Self::max_resets_per_second)).
    pub fn max_pending_resets(mut self, streams: usize) -> Self {
        self.max_pending_resets = streams;
        self
    }

    /// Sets how many streams of a connection the server may reset because of the client's mistakes.
    pub fn max_error_resets(mut self, streams: usize) -> Self {
        self.max_error_resets = streams;
        self
    }

    /// Sets how many streams of a connection the client may reset per second. It may reset five
    /// times as many at once.
    pub fn max_resets_per_second(mut self, streams: u32) -> Self {
        self.max_resets_per_second = streams;
        self
    }

    /// Sets how many control frames (SETTINGS, PING, PRIORITY, WINDOW_UPDATE, CONTINUATION, empty
    /// DATA, unknown kinds) may arrive per second, in addition to four for each HEADERS and DATA
    /// frame of either side.
    ///
    /// Window updates for data that the server has sent do not count, up to four for each DATA
    /// frame and one for each KiB in it: clients that read in small pieces send that many. Answers
    /// to the server's SETTINGS and PING do not count either.
    pub fn max_control_frames_per_second(mut self, frames: u32) -> Self {
        self.max_control_frames_per_second = frames;
        self
    }

    pub(super) fn clamped(mut self) -> Self {
        // With a window of 0 no body would ever be sent, because h2 gives back only the room that
        // was read.
        const SMALLEST_WINDOW: u32 = 1 << 10;
        const GREATEST_WINDOW: u32 = (1 << 31) - 1;
        let in_range = |timeout: Duration| timeout.clamp(SHORTEST_TIMEOUT, LONGEST_TIMEOUT);
        self.max_streams = self.max_streams.max(1);
        self.stream_window = self.stream_window.clamp(SMALLEST_WINDOW, GREATEST_WINDOW);
        self.connection_window = self.connection_window.clamp(65_535, GREATEST_WINDOW);
        self.max_frame_size = self.max_frame_size.clamp(16_384, 16_777_215);
        self.max_send_buffer = self.max_send_buffer.clamp(1, u32::MAX as usize);
        self.ping_interval = self.ping_interval.map(in_range);
        self.ping_timeout = in_range(self.ping_timeout);
        self.max_resets_per_second = self.max_resets_per_second.max(1);
        self.max_control_frames_per_second = self.max_control_frames_per_second.max(1);
        self
    }
}
