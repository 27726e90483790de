//! HTTP/1.1. Requests may be pipelined; answers come in the same order.
//!
//! The reader remembers its place in an answer. It parses a head once the head is complete, and
//! counts down and drops bodies as they arrive.
//!
//! If the peer says that it closes the connection, the current answer is the last one. Later
//! requests on the connection are failures, and later bytes are dropped.

use std::{mem::MaybeUninit, sync::Arc};

use httparse::Status;

use super::{
    Answer, Conversation, InOrder, InvalidTemplate, Outcome, Protocol, ProtocolError, Template,
};

const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 128;
/// The longest line in front of a chunk, with the chunk's length and extensions.
const MAX_CHUNK_LINE: usize = 4 << 10;

/// The beginning of the answer of a server that closes a connection because no request came.
const IDLE_TOO_LONG: &[u8] = b"HTTP/1.1 408 ";

/// A conversation in [`Protocol::Http1`].
#[derive(Debug, Clone)]
pub struct Http1 {
    prepared: Arc<[u8]>,
    /// Whether the method is HEAD. Answers to HEAD have no bodies.
    head_only: bool,
    keys: InOrder,
    state: State,
    /// The outcome of the current answer.
    outcome: Outcome,
    /// Whether the current answer is the last one.
    closing: bool,
}

/// What the reader expects next.
#[derive(Debug, Clone, Copy)]
enum State {
    /// A head. Its first `searched` bytes do not contain its end.
    Head { searched: usize },
    /// The remaining `left` bytes of a body of known length.
    Body { left: u64 },
    /// The line that begins a chunk.
    ChunkLine,
    /// The remaining `left` bytes of a chunk.
    Chunk { left: u64 },
    /// The line break after a chunk.
    ChunkEnd,
    /// The lines after the last chunk, up to an empty one.
    Trailers { line_is_empty: bool },
    /// A body that lasts until the connection ends.
    UntilClose,
    /// Bytes that are dropped, because the connection is closing.
    Over,
}

/// What a head says about the body and the connection.
struct Head {
    length: usize,
    status: u16,
    framing: State,
    closing: bool,
}

impl Http1 {
    /// Makes a conversation that sends the template's request.
    ///
    /// # Errors
    /// The template is not an HTTP/1.1 request.
    pub fn new(template: &Template) -> Result<Self, InvalidTemplate> {
        template.check_http()?;
        let Template { method, path, body, .. } = template;
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", template.host());
        for (name, value) in template.own_headers() {
            text.extend([name, ": ", value, "\r\n"]);
        }
        if template.says_length() {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        Ok(Self {
            prepared: [text.as_bytes(), body].concat().into(),
            head_only: method == "HEAD",
            keys: InOrder::default(),
            state: State::Head { searched: 0 },
            outcome: Outcome::Success,
            closing: false,
        })
    }

    /// Takes one piece of an answer. Returns `None` if more bytes are needed.
    fn step(
        &mut self,
        input: &[u8],
        answers: &mut Vec<Answer>,
    ) -> Result<Option<usize>, ProtocolError> {
        match self.state {
            State::Head { .. } if self.keys.waiting().is_none() => return self.unasked(input),
            State::Head { searched } => {
                let Some(head) = self.head(input, searched)? else { return Ok(None) };
                if !(100..200).contains(&head.status) {
                    self.outcome = Outcome::of_status(head.status);
                    self.closing = head.closing;
                    self.state = head.framing;
                    if matches!(self.state, State::Body { left: 0 }) {
                        self.end(answers);
                    }
                } else {
                    self.state = State::Head { searched: 0 };
                }
                return Ok(Some(head.length));
            }
            _ if input.is_empty() => return Ok(None),
            State::Body { left } => {
                let taken = part(left, input);
                self.state = State::Body { left: left - taken as u64 };
                if taken as u64 == left {
                    self.end(answers);
                }
                return Ok(Some(taken));
            }
            State::ChunkLine => {
                let line = &input[..input.len().min(MAX_CHUNK_LINE)];
                return match httparse::parse_chunk_size(line) {
                    Ok(Status::Complete((taken, 0))) => {
                        self.state = State::Trailers { line_is_empty: true };
                        Ok(Some(taken))
                    }
                    Ok(Status::Complete((taken, left))) => {
                        self.state = State::Chunk { left };
                        Ok(Some(taken))
                    }
                    Ok(Status::Partial) if input.len() < MAX_CHUNK_LINE => Ok(None),
                    _ => Err(error("a chunk without a valid length")),
                };
            }
            State::Chunk { left } => {
                let taken = part(left, input);
                let left = left - taken as u64;
                self.state = if left == 0 { State::ChunkEnd } else { State::Chunk { left } };
                return Ok(Some(taken));
            }
            State::ChunkEnd => {
                let Some(end) = input.first_chunk() else { return Ok(None) };
                if end != b"\r\n" {
                    return Err(error("a chunk does not end where it said"));
                }
                self.state = State::ChunkLine;
                return Ok(Some(2));
            }
            State::Trailers { mut line_is_empty } => {
                for (at, &byte) in input.iter().enumerate() {
                    match byte {
                        b'\n' if line_is_empty => {
                            self.end(answers);
                            return Ok(Some(at + 1));
                        }
                        b'\n' => line_is_empty = true,
                        b'\r' => {}
                        _ => line_is_empty = false,
                    }
                }
                self.state = State::Trailers { line_is_empty };
            }
            State::UntilClose | State::Over => {}
        }
        Ok(Some(input.len()))
    }

    /// Ends the current answer.
    fn end(&mut self, answers: &mut Vec<Answer>) {
        self.keys.answer(self.outcome, answers);
        self.state = State::Head { searched: 0 };
        if self.closing {
            self.state = State::Over;
            while self.keys.waiting().is_some() {
                self.keys.answer(Outcome::Failure, answers);
            }
        }
    }

    /// Handles bytes that come while no request waits. A server may send a 408 to say that it
    /// closes an idle connection (RFC 9110, 15.5.9). Anything else is an error.
    fn unasked(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if input.starts_with(IDLE_TOO_LONG) {
            self.closing = true;
            self.state = State::Over;
            return Ok(Some(input.len()));
        }
        if IDLE_TOO_LONG.starts_with(input) {
            return Ok(None);
        }
        Err(error("an answer that nobody asked for"))
    }

    /// Reads the head at the front of the input, if it is complete.
    fn head(&mut self, input: &[u8], searched: usize) -> Result<Option<Head>, ProtocolError> {
        if input.is_empty() {
            return Ok(None);
        }
        // At first, the parser itself looks for the head's end. If the head is not complete, only
        // the bytes that arrive later are searched for its end, before the parser runs again.
        if searched == 0 || has_end(input, searched) {
            let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
            let mut response = httparse::Response::new(&mut []);
            let parsed = httparse::ParserConfig::default()
                .parse_response_with_uninit_headers(&mut response, input, &mut headers)
                .map_err(|fault| error(format!("an answer's head: {fault}")))?;
            if let Status::Complete(length) = parsed {
                return understand(&response, length, self.head_only).map(Some);
            }
        }
        if input.len() > MAX_HEAD {
            return Err(error(format!("a head of more than {MAX_HEAD} bytes")));
        }
        self.state = State::Head { searched: input.len() };
        Ok(None)
    }
}

/// How many bytes of the input belong to a body of which `left` bytes are still to come.
fn part(left: u64, input: &[u8]) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(input.len())
}

/// Whether an empty line ends at or after `from`.
fn has_end(input: &[u8], from: usize) -> bool {
    let ends = |at: usize| input[..at].ends_with(b"\n") || input[..at].ends_with(b"\n\r");
    (from..input.len()).any(|at| input[at] == b'\n' && ends(at))
}

/// Reads from a head how long the body is, and whether the connection stays open.
fn understand(
    response: &httparse::Response<'_, '_>,
    length: usize,
    head_only: bool,
) -> Result<Head, ProtocolError> {
    let status = response.code.unwrap_or_default();
    let (mut said, mut chunked, mut coded) = (None, false, false);
    let (mut close, mut keep_alive) = (false, false);
    for header in &*response.headers {
        let parts = || header.value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        if header.name.eq_ignore_ascii_case("content-length") {
            for value in parts() {
                let value = decimal(value).ok_or_else(|| error("an invalid content-length"))?;
                if said.replace(value).is_some_and(|before| before != value) {
                    return Err(error("two different content-lengths"));
                }
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            coded = true;
            chunked = parts().next_back().is_some_and(|it| it.eq_ignore_ascii_case(b"chunked"));
        } else if header.name.eq_ignore_ascii_case("connection") {
            close |= parts().any(|it| it.eq_ignore_ascii_case(b"close"));
            keep_alive |= parts().any(|it| it.eq_ignore_ascii_case(b"keep-alive"));
        }
    }
    let framing = match (status, said) {
        (101, _) => return Err(error("the peer changed to another protocol")),
        _ if status < 100 => return Err(error(format!("the status {status}"))),
        (..200 | 204 | 304, _) => State::Body { left: 0 },
        _ if head_only => State::Body { left: 0 },
        _ if chunked => State::ChunkLine,
        (_, Some(left)) if !coded => State::Body { left },
        _ => State::UntilClose,
    };
    let closing = close
        || matches!(framing, State::UntilClose)
        || (response.version == Some(0) && !keep_alive);
    Ok(Head { length, status, framing, closing })
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    str::from_utf8(digits).ok()?.parse().ok()
}

fn error(what: impl Into<String>) -> ProtocolError {
    ProtocolError::new(Protocol::Http1, what)
}

impl Conversation for Http1 {
    fn open(&mut self, _out: &mut Vec<u8>) {}

    fn may_request(&self) -> bool {
        !self.closing
    }

    fn request(&mut self, out: &mut Vec<u8>) -> u64 {
        out.extend_from_slice(&self.prepared);
        self.keys.ask()
    }

    fn receive(
        &mut self,
        input: &[u8],
        _out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<usize, ProtocolError> {
        let mut taken = 0;
        while let Some(step) = self.step(&input[taken..], answers)? {
            taken += step;
        }
        Ok(taken)
    }

    fn close(&mut self, answers: &mut Vec<Answer>) {
        self.closing = true;
        if matches!(self.state, State::UntilClose) {
            self.end(answers);
        }
    }

    fn is_closing(&self) -> bool {
        self.closing
    }
}

#[cfg(test)]
mod tests;
