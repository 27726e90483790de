//! One connection without its socket: bytes in, bytes out.

use crate::frame::{self, FrameBuffer};
use crate::http;

/// What a peer serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// A 4-byte big-endian length and a payload, answered as they came.
    Echo,
    /// `GET /` over HTTP/1.1, answered with six bytes.
    Http,
}

impl Service {
    /// Every service there is.
    pub const ALL: &[Self] = &[Self::Echo, Self::Http];

    /// As the flag `--service` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Http => "http",
        }
    }
}

/// What [`answer`] made of the bytes received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// How many of the bytes received are dealt with.
    pub end: usize,
    /// Whether the connection ends after this answer.
    pub close: bool,
}

/// Answers everything complete in `received`.
///
/// An echo's answer is the bytes up to [`Answer::end`] themselves, and `out`
/// stays as it is; an HTTP answer is appended to `out`.
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
/// Read into [`space`](Self::space), account for it with
/// [`received`](Self::received), write all of [`output`](Self::output), then
/// call [`written`](Self::written).
#[derive(Debug)]
pub struct Session {
    service: Service,
    buffer: FrameBuffer,
    out: Vec<u8>,
    answer: Answer,
}

impl Session {
    /// The state of a new connection.
    #[must_use]
    pub fn new(service: Service) -> Self {
        let answer = Answer { end: 0, close: false };
        Self { service, buffer: FrameBuffer::default(), out: Vec::new(), answer }
    }

    /// The free space to read into; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.space()
    }

    /// Accounts for `count` bytes read and prepares the answer to all that is
    /// complete by now.
    pub fn received(&mut self, count: usize) {
        self.buffer.add_received(count);
        self.answer = answer(self.service, self.buffer.received(), &mut self.out);
    }

    /// What is to be written; may be empty.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        match self.service {
            Service::Echo => &self.buffer.received()[..self.answer.end],
            Service::Http => &self.out,
        }
    }

    /// Forgets what was answered. False if the connection is to be closed.
    #[must_use]
    pub fn written(&mut self) -> bool {
        self.buffer.discard(self.answer.end);
        self.answer.end = 0;
        self.out.clear();
        !self.answer.close
    }
}
