//! The client's side of HTTP/2 with prior knowledge (RFC 9113).
//!
//! Each request is a stream: a header block, the same each time, and as much of the body as the
//! peer's windows allow. The rest is kept as a number, because requests share their bodies, and is
//! sent when the peer makes room. The key of an answer is the order of its stream.
//!
//! Frames are read as a whole, except DATA, which is dropped as it arrives. An error of one stream
//! resets it and fails its request; other errors end the connection. Frames of a stream that has
//! been answered or reset are ignored.
//!
//! A gRPC request (by its `content-type`) has failed if its `grpc-status` is not 0, whatever its
//! `:status`.
//!
//! In a steady state only the generator's buffers allocate.

mod hpack;
mod receive;
mod receiving;
mod request;
mod settings;
mod streams;
#[cfg(test)]
mod tests;
mod wire;

use std::{collections::BTreeSet, sync::Arc};

pub(super) use self::wire::MIN_MAX_FRAME;
use self::{
    receiving::Receiving,
    request::{NO_TABLE, Request},
    settings::{DEFAULT_WINDOW, Settings},
    streams::{Stream, Streams},
    wire::{Code, END_HEADERS, END_STREAM, HEADER, Header, Kind, MAX_31},
};
use super::{Answer, Conversation, InvalidTemplate, Outcome, ProtocolError, Template};

/// A conversation in [`Protocol::Http2`](super::Protocol::Http2).
#[derive(Debug, Clone)]
pub struct Http2 {
    request: Arc<Request>,
    /// The number of the next request's stream.
    next: u32,
    streams: Streams,
    /// The streams whose bodies wait for room, oldest first.
    stalled: BTreeSet<u32>,
    /// How many bytes of bodies the peer takes on the whole connection. If this is not zero, all
    /// stalled streams wait for room in their own windows.
    window: i64,
    /// How many bytes of bodies were sent, with their frames.
    bodies: usize,
    settings: Settings,
    /// Whether the peer knows that our header blocks use no dynamic table.
    table_renounced: bool,
    /// Whether there will be no more requests.
    closing: bool,
    receiving: Receiving,
}

impl Http2 {
    /// Makes a conversation that sends the template's request.
    ///
    /// # Errors
    /// The template cannot be encoded in HTTP/2.
    pub fn new(template: &Template) -> Result<Self, InvalidTemplate> {
        Ok(Self {
            request: Arc::new(Request::new(template)?),
            next: 1,
            streams: Streams::default(),
            stalled: BTreeSet::new(),
            window: DEFAULT_WINDOW.into(),
            bodies: 0,
            settings: Settings::default(),
            table_renounced: false,
            closing: false,
            receiving: Receiving::default(),
        })
    }

    /// Sends as much of a stream's body as the windows have room for.
    fn send_body(&mut self, id: u32, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let body = &self.request.body;
        while stream.unsent > 0 {
            let room = usize::try_from(self.window.min(stream.window)).unwrap_or(0);
            let length = room.min(stream.unsent).min(self.settings.max_frame);
            if length == 0 {
                self.stalled.insert(id);
                return;
            }
            let rest = &body[body.len() - stream.unsent..];
            stream.unsent -= length;
            stream.window -= length as i64;
            self.window -= length as i64;
            self.bodies += HEADER + length;
            let flags = if stream.unsent == 0 { END_STREAM } else { 0 };
            wire::write(out, Kind::Data, flags, id, &rest[..length]);
        }
        self.stalled.remove(&id);
    }

    /// Sends bodies that wait for room, the oldest first. Called when there is more room.
    fn send_stalled(&mut self, out: &mut Vec<u8>) {
        let mut from = 0;
        while self.window > 0
            && let Some(&id) = self.stalled.range(from..).next()
        {
            self.send_body(id, out);
            from = id + 1;
        }
    }

    /// Ends a stream with an answer.
    fn answer(&mut self, id: u32, outcome: Outcome, answers: &mut Vec<Answer>) {
        if self.streams.remove(&id).is_some() {
            self.stalled.remove(&id);
            answers.push(Answer { key: u64::from(id / 2), outcome });
        }
    }

    /// Resets a stream on which the peer has made a mistake, and counts its request as failed.
    fn fail(&mut self, id: u32, code: Code, out: &mut Vec<u8>, answers: &mut Vec<Answer>) {
        wire::write_reset(out, id, code);
        self.answer(id, Outcome::Failure, answers);
    }

    /// Whether all stream numbers have been used.
    fn is_exhausted(&self) -> bool {
        self.next > MAX_31
    }
}

impl Conversation for Http2 {
    fn open(&mut self, out: &mut Vec<u8>) {
        settings::open(out);
    }

    /// Returns `false` until the peer's settings have come, because they may allow fewer streams
    /// than are wanted. Also returns `false` while a body would have to wait for room in the window
    /// of the whole connection.
    fn may_request(&self) -> bool {
        self.settings.known
            && !self.is_closing()
            && self.streams.len() < self.settings.max_streams
            && (self.window > 0 || self.request.body.is_empty())
    }

    fn request(&mut self, out: &mut Vec<u8>) -> u64 {
        let id = self.next;
        self.next += 2;
        let Request { block, body, .. } = &*self.request;
        let renounce = self.settings.small_table && !self.table_renounced;
        let length = block.len() + usize::from(renounce);
        let flags = END_HEADERS | if body.is_empty() { END_STREAM } else { 0 };
        Header { length, kind: Kind::Headers, flags, stream: id }.write(out);
        if renounce {
            self.table_renounced = true;
            out.push(NO_TABLE);
        }
        out.extend_from_slice(block);
        let window = self.settings.window.into();
        let stream =
            Stream { window, unsent: body.len(), received: 0, outcome: None, grpc_ok: None };
        self.streams.insert(id, stream);
        self.send_body(id, out);
        u64::from(id / 2)
    }

    fn receive(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<usize, ProtocolError> {
        let mut taken = 0;
        while let Some(step) = self.step(&input[taken..], out, answers)? {
            taken += step;
        }
        Ok(taken)
    }

    fn bodies(&self) -> usize {
        self.bodies
    }

    fn close(&mut self, _answers: &mut Vec<Answer>) {
        self.closing = true;
    }

    fn is_closing(&self) -> bool {
        self.closing || self.is_exhausted()
    }
}
