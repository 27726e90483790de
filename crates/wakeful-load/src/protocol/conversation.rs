//! One connection's side of a protocol, and the outcomes of its requests.

use thiserror::Error;

use super::mix::Draw;
use super::names::Protocol;

/// One connection's side of a protocol.
pub trait Conversation {
    /// Appends the bytes that open the connection, before any request.
    fn open(&mut self, out: &mut Vec<u8>);

    /// Whether one more request may begin now. The generator also has a limit of its own.
    fn may_request(&self) -> bool;

    /// Appends the next request and returns its key. The answer to the request has the same key.
    /// The keys of one connection never repeat.
    ///
    /// Must not be called unless [`may_request`](Self::may_request) returns `true`.
    fn request(&mut self, out: &mut Vec<u8>) -> u64;

    /// Like [`request`](Self::request), but sends the one of several requests that was drawn. A
    /// protocol for which only one request was prepared sends that one.
    fn request_drawn(&mut self, _draw: Draw, out: &mut Vec<u8>) -> u64 {
        self.request(out)
    }

    /// Takes what it can from the front of `input`: whole messages, and parts of bodies. Returns
    /// the number of bytes that it took. The caller passes the rest again, in front of the bytes
    /// that arrive next. Appends finished answers to `answers`. Appends to `out` the protocol's own
    /// replies, and the parts of requests' bodies for which the peer has made room.
    ///
    /// # Errors
    /// The peer broke the protocol. The connection cannot be used any more.
    fn receive(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<usize, ProtocolError>;

    /// Returns how many bytes of requests' bodies were appended so far, with their frames, in a
    /// protocol in which [`receive`](Self::receive) appends such bytes. They are no replies.
    fn bodies(&self) -> usize {
        0
    }

    /// Handles the end of the peer's stream: appends the answers that the end completes, such as an
    /// HTTP/1 body that lasts until the end. Requests that are unanswered after this call stay
    /// unanswered.
    fn close(&mut self, answers: &mut Vec<Answer>);

    /// Whether the peer has said that it takes no more requests on this connection
    /// (`connection: close`, GOAWAY).
    fn is_closing(&self) -> bool;
}

/// The answer to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The key that [`Conversation::request`] returned.
    pub key: u64,
    /// Whether the answer is a success.
    pub outcome: Outcome,
}

/// Whether an answer is a success or a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The server answered without an error.
    Success,
    /// The server answered with this HTTP status, of 400 or more.
    Status(u16),
    /// The server answered with another error: a RESP error, a gRPC status, a reset stream, or a
    /// payload other than the one sent.
    Failure,
}

/// The peer broke the protocol.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{protocol}: {what}")]
pub struct ProtocolError {
    /// The name of the protocol.
    pub protocol: &'static str,
    /// What was wrong.
    pub what: String,
}

impl ProtocolError {
    pub(super) fn new(protocol: Protocol, what: impl Into<String>) -> Self {
        Self { protocol: protocol.name(), what: what.into() }
    }
}

/// The keys of a protocol in which answers come in the order of the requests. Two counters suffice.
#[derive(Debug, Clone, Default)]
pub(super) struct InOrder {
    asked: u64,
    answered: u64,
}

impl InOrder {
    /// Returns the key of a new request.
    pub(super) fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked - 1
    }

    /// Returns the key of the request that is answered next, or `None` if no request waits.
    pub(super) fn waiting(&self) -> Option<u64> {
        (self.answered < self.asked).then_some(self.answered)
    }

    /// Appends an answer to the oldest request that waits, if there is one.
    pub(super) fn answer(&mut self, outcome: Outcome, answers: &mut Vec<Answer>) {
        if let Some(key) = self.waiting() {
            self.answered += 1;
            answers.push(Answer { key, outcome });
        }
    }
}

impl Outcome {
    pub(super) fn of_status(status: u16) -> Self {
        if status < 400 { Self::Success } else { Self::Status(status) }
    }

    pub(super) fn of(good: bool) -> Self {
        if good { Self::Success } else { Self::Failure }
    }
}
