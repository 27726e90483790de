//! The choice of a protocol at run time: its name, and one type for the conversations of all.
//!
//! [`AnyConversation`] is matched, not boxed: the generator's hot path calls no virtual function. A
//! template is checked and encoded once, in [`Protocol::prepare`]; every connection's conversation
//! then shares those bytes.

use super::{
    Answer, Conversation, Draw, Frames, Http1, Http2, InvalidTemplate, Protocol, ProtocolError,
    Resp, Template,
};

impl Protocol {
    /// Checks the template and encodes its request, once for all connections.
    ///
    /// # Errors
    /// The template cannot be said in this protocol.
    pub fn prepare(self, template: &Template) -> Result<Prepared, InvalidTemplate> {
        Ok(Prepared(match self {
            Self::Frames => AnyConversation::Frames(Frames::new(template)?),
            Self::Resp => AnyConversation::Resp(Resp::new(template)?),
            Self::Http1 => AnyConversation::Http1(Http1::new(template)?),
            Self::Http2 => AnyConversation::Http2(Http2::new(template)?),
        }))
    }
}

/// A checked template with its request encoded: makes conversations that share those bytes.
#[derive(Debug, Clone)]
pub struct Prepared(AnyConversation);

impl Prepared {
    /// Several commands in [`Protocol::Resp`], of which each request is one that was drawn.
    ///
    /// # Errors
    /// There are none, or one of them is no command.
    pub fn commands(templates: &[Template]) -> Result<Self, InvalidTemplate> {
        Ok(Self(AnyConversation::Resp(Resp::of_commands(templates)?)))
    }

    /// A conversation for one new connection.
    pub fn conversation(&self) -> AnyConversation {
        self.0.clone()
    }
}

/// A conversation in any [`Protocol`].
#[derive(Debug, Clone)]
pub enum AnyConversation {
    /// In [`Protocol::Frames`].
    Frames(Frames),
    /// In [`Protocol::Resp`].
    Resp(Resp),
    /// In [`Protocol::Http1`].
    Http1(Http1),
    /// In [`Protocol::Http2`].
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

    fn close(&mut self, answers: &mut Vec<Answer>) {
        each!(self, it => it.close(answers));
    }

    fn is_closing(&self) -> bool {
        each!(self, it => it.is_closing())
    }
}
