//! One type for the conversations of all protocols. [`AnyConversation`] is an enum, so the
//! generator's hot path calls no virtual function.

use super::{Answer, Conversation, Draw, Frames, Http1, Http2, ProtocolError, Resp};

/// A conversation in any [`Protocol`](super::Protocol).
#[derive(Debug, Clone)]
pub enum AnyConversation {
    /// In [`Protocol::Frames`](super::Protocol::Frames).
    Frames(Frames),
    /// In [`Protocol::Resp`](super::Protocol::Resp).
    Resp(Resp),
    /// In [`Protocol::Http1`](super::Protocol::Http1).
    Http1(Http1),
    /// In [`Protocol::Http2`](super::Protocol::Http2).
    Http2(Http2),
}

macro_rules! each {
    ($any:expr, $conversation:ident => $call:expr) => {
        match $any {
            AnyConversation::Frames($conversation) => $call,
            AnyConversation::Resp($conversation) => $call,
            AnyConversation::Http1($conversation) => $call,
            AnyConversation::Http2($conversation) => $call,
        }
    };
}

impl Conversation for AnyConversation {
    fn open(&mut self, out: &mut Vec<u8>) {
        each!(self, it => it.open(out));
    }

    fn may_request(&self) -> bool {
        each!(self, it => it.may_request())
    }

    fn request(&mut self, out: &mut Vec<u8>) -> u64 {
        each!(self, it => it.request(out))
    }

    fn request_drawn(&mut self, draw: Draw, out: &mut Vec<u8>) -> u64 {
        each!(self, it => it.request_drawn(draw, out))
    }

    fn receive(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<usize, ProtocolError> {
        each!(self, it => it.receive(input, out, answers))
    }

    fn bodies(&self) -> usize {
        each!(self, it => it.bodies())
    }

    fn close(&mut self, answers: &mut Vec<Answer>) {
        each!(self, it => it.close(answers));
    }

    fn is_closing(&self) -> bool {
        each!(self, it => it.is_closing())
    }
}
