//! What is bounded of HTTP/2 alone.

use std::time::Duration;

use super::timeouts::{LONGEST_TIMEOUT, SHORTEST_TIMEOUT};

/// The limits that only HTTP/2 has. Out of range becomes the nearest in it.
///
/// | setting | default | range | beyond it |
/// |---|---|---|---|
/// | `max_streams` | 200 | 1 and more | the stream is refused (REFUSED_STREAM) |
/// | `stream_window` | 1 MiB | 0 to 2³¹ - 1 | GOAWAY (FLOW_CONTROL_ERROR) |
/// | `connection_window` | 1 MiB | 65,535 to 2³¹ - 1 | GOAWAY (FLOW_CONTROL_ERROR) |
/// | `max_frame_size` | 16 KiB | 16,384 to 16,777,215 | GOAWAY (FRAME_SIZE_ERROR) |
/// | `max_send_buffer` | 400 KiB | 1 and more | the response's body is not polled |
/// | `ping_interval` | none | 1 ms and more | |
/// | `ping_timeout` | 20 s | 1 ms and more | the connection is closed |
/// | `max_pending_resets` | 20 | | GOAWAY (ENHANCE_YOUR_CALM) |
/// | `max_error_resets` | 1,024 | | GOAWAY (ENHANCE_YOUR_CALM) |
/// | `max_resets_per_second` | 200, and 5 times as many at once | 1 and more | GOAWAY (ENHANCE_YOUR_CALM) |
/// | `max_control_frames_per_second` | 250 | 1 and more | GOAWAY (ENHANCE_YOUR_CALM) |
///
/// How many CONTINUATION frames a header may have follows from `max_header_size` and
/// `max_frame_size`: those that it needs when they are full and a quarter more, at least five;
/// beyond, GOAWAY (ENHANCE_YOUR_CALM). So is it with more than 100 empty DATA frames that end
/// nothing, and with small ones that nobody reads: what each lacks to 256 bytes counts against half
/// of `connection_window`, so that some 2,000 tiny messages of WebSockets or calls may wait for
/// their handlers. Where more do, raise it. A window is what a client may send before anybody reads
/// it: the connection's bounds the memory for bodies, times the connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http2Limits {
    /// How many requests a connection may have in flight.
    pub max_streams: u32,
    /// How much of a body may be on its way, in bytes, before it is read.
    pub stream_window: u32,
    /// How much of all bodies of a connection together.
    pub connection_window: u32,
    /// The longest frame that is taken, in bytes.
    pub max_frame_size: u32,
    /// How much of a response is buffered for a client that does not take it, in bytes, for each
    /// stream.
    pub max_send_buffer: usize,
    /// How often the client is asked whether it is there.
    pub ping_interval: Option<Duration>,
    /// How long it may take to answer that.
    pub ping_timeout: Duration,
    /// How many streams that the client has reset may wait for the service to learn of them.
    pub max_pending_resets: usize,
    /// How many streams may be reset because of the client's mistakes, in the connection's life.
    pub max_error_resets: usize,
    /// How many streams the client may reset in a second.
    pub max_resets_per_second: u32,
    /// How many frames that ask for work and bring nothing (SETTINGS, PING, PRIORITY,
    /// WINDOW_UPDATE, CONTINUATION, empty DATA, unknown kinds) may come in a second, beyond four
    /// for each HEADERS and DATA frame of either side. Window updates are free for what the server
    /// has sent, four for a DATA frame and one for each KiB in it: so often do clients that read in
    /// small pieces send them. So are answers to its SETTINGS and PING.
    pub max_control_frames_per_second: u32,
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
            max_pending_resets: 20,
            max_error_resets: 1024,
            max_resets_per_second: 200,
            max_control_frames_per_second: 250,
        }
    }
}

impl Http2Limits {
    pub(super) fn clamped(mut self) -> Self {
        const GREATEST_WINDOW: u32 = (1 << 31) - 1;
        let in_range = |timeout: Duration| timeout.clamp(SHORTEST_TIMEOUT, LONGEST_TIMEOUT);
        self.max_streams = self.max_streams.max(1);
        self.stream_window = self.stream_window.min(GREATEST_WINDOW);
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
