//! One connection without its socket: bytes in, bytes out.

use crate::frame::{self, FrameBuffer};
use crate::http;

/// What a peer serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// A 4-byte big-endian length and a payload, which are sent back unchanged.
    Echo,
    /// `GET /` over HTTP/1.1, answered with six bytes.
    Http,
}

impl Service {
    /// All services.
    pub const ALL: &[Self] = &[Self::Echo, Self::Http];

    /// Returns the name that the flag `--service` takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Http => "http",
        }
    }
}

/// The result of [`answer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// How many of the received bytes are dealt with.
    pub end: usize,
    /// Whether the connection ends after this answer.
    pub close: bool,
}

/// Answers everything complete in `received`.
///
/// An echo's answer consists of the bytes up to [`Answer::end`] themselves, and `out` stays
/// unchanged. An HTTP answer is appended to `out`.
#[must_use]
pub fn answer(service: Service, received: &[u8], out: &mut Vec<u8>) -> Answer {
    match service {
        Service::Echo => {
            let frames = frame::frames(received);
            Answer { end: frames.end, close: frames.oversized }
        }
        Service::Http => http::answer(received, out),
    }
}

/// A connection's buffers, for runtimes that read into a borrowed buffer.
///
/// Read into [`space`](Self::space), report the bytes with [`received`](Self::received), write all
/// of [`output`](Self::output), then call [`written`](Self::written).
#[derive(Debug)]
pub struct Session {
    service: Service,
    buffer: FrameBuffer,
    out: Vec<u8>,
    answer: Answer,
}

impl Session {
    /// Makes the state of a new connection.
    #[must_use]
    pub fn new(service: Service) -> Self {
        let answer = Answer { end: 0, close: false };
        Self { service, buffer: FrameBuffer::default(), out: Vec::new(), answer }
    }

    /// The free space to read into; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.space()
    }

    /// Reports that `count` bytes were read, and prepares the answer to everything that is
    /// complete.
    pub fn received(&mut self, count: usize) {
        self.buffer.add_received(count);
        self.answer = answer(self.service, self.buffer.received(), &mut self.out);
    }

    /// Returns the bytes to write, possibly none.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        match self.service {
            Service::Echo => &self.buffer.received()[..self.answer.end],
            Service::Http => &self.out,
        }
    }

    /// Forgets what was answered. Returns false if the connection must be closed.
    #[must_use]
    pub fn written(&mut self) -> bool {
        self.buffer.discard(self.answer.end);
        self.answer.end = 0;
        self.out.clear();
        !self.answer.close
    }
}
