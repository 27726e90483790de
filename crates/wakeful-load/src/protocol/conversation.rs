//! One connection's side of a protocol, and the outcomes of its requests.

use thiserror::Error;

use super::mix::Draw;
use super::names::Protocol;

/// One connection's side of a protocol.
pub trait Conversation {
    /// Appends what opens the connection, before any request.
    fn open(&mut self, out: &mut Vec<u8>);

    /// Whether one more request may begin now. The generator has a limit of its own besides.
    fn may_request(&self) -> bool;

    /// Appends the next request and returns its key, by which its answer is known. Keys of one
    /// connection never repeat.
    ///
    /// Must not be called unless [`may_request`](Self::may_request) says yes.
    fn request(&mut self, out: &mut Vec<u8>) -> u64;

    /// The same with the one of several requests that was drawn. A protocol that is prepared with a
    /// single one sends that.
    fn request_drawn(&mut self, _draw: Draw, out: &mut Vec<u8>) -> u64 {
        self.request(out)
    }

    /// Takes what it can from the front of `input` (whole messages, and parts of bodies) and
    /// returns how many bytes that were; what is left is given again in front of what arrives next.
    /// Appends finished answers to `answers`, and to `out` whatever the protocol itself has to
    /// reply.
    ///
    /// # Errors
    /// The peer broke the protocol: the connection is of no more use.
    fn receive(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<usize, ProtocolError>;

    /// The peer has ended its stream: appends the answers which that completes, such as an HTTP/1
    /// body that lasts until the end. Requests unanswered after this stay so.
    fn close(&mut self, answers: &mut Vec<Answer>);

    /// Whether the peer has said that it takes no more requests on this connection
    /// (`connection: close`, GOAWAY).
    fn is_closing(&self) -> bool;
}

/// The end of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// What [`Conversation::request`] returned.
    pub key: u64,
    /// Whether it is what was hoped for.
    pub outcome: Outcome,
}

/// Whether an answer is what was hoped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is.
    Success,
    /// The server answered, but with an error: an HTTP status of 400 or more, an error of RESP, a
    /// reset stream, a payload other than the one sent.
    Failure,
}

/// The peer broke the protocol.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{protocol}: {what}")]
pub struct ProtocolError {
    /// The protocol's name.
    pub protocol: &'static str,
    /// What was wrong.
    pub what: String,
}

impl ProtocolError {
    pub(super) fn new(protocol: Protocol, what: impl Into<String>) -> Self {
        Self { protocol: protocol.name(), what: what.into() }
    }
}

/// The keys of a protocol whose answers come in the order of the requests: two counters.
#[derive(Debug, Clone, Default)]
pub(super) struct InOrder {
    asked: u64,
    answered: u64,
}

impl InOrder {
    /// The key of a new request.
    pub(super) fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked - 1
    }

    /// The key of the request that is answered next, if any waits.
    pub(super) fn waiting(&self) -> Option<u64> {
        (self.answered < self.asked).then_some(self.answered)
    }

    /// The oldest request has had its answer.
    pub(super) fn answer(&mut self, outcome: Outcome, answers: &mut Vec<Answer>) {
        if let Some(key) = self.waiting() {
            self.answered += 1;
            answers.push(Answer { key, outcome });
        }
    }
}

impl Outcome {
    pub(super) fn of(good: bool) -> Self {
        if good { Self::Success } else { Self::Failure }
    }
}
