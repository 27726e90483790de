//! Handles the peer's frames, with one method for each kind.

use super::{
    Http2,
    hpack::Status,
    receiving::{Block, Data, Receiving},
    settings::WINDOW,
    wire::{
        self, ACK, Code, END_HEADERS, END_STREAM, HEADER, Header, Kind, MAX_31, MIN_MAX_FRAME,
        PADDED, error, exactly,
    },
};
use crate::protocol::{Answer, Outcome, ProtocolError};

/// Header blocks that are longer than this in their encoded form are refused.
const MAX_BLOCK: usize = 64 << 10;

impl Http2 {
    /// Takes one frame, or a part of a DATA frame. Returns `None` if more bytes are needed.
    pub(super) fn step(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<Option<usize>, ProtocolError> {
        if let Some(data) = self.receiving.data {
            let taken = input.len().min(data.left);
            let left = data.left - taken;
            if left > 0 {
                self.receiving.data = Some(Data { left, ..data });
                return Ok((taken > 0).then_some(taken));
            }
            self.receiving.data = None;
            if data.end {
                self.ended(data.stream, out, answers);
            }
            return Ok(Some(taken));
        }
        let Some(header) = Header::read(input) else { return Ok(None) };
        self.check(header)?;
        if header.kind == Kind::Data {
            return self.data(header, &input[HEADER..], out, answers);
        }
        let end = HEADER + header.length;
        let Some(payload) = input.get(HEADER..end) else { return Ok(None) };
        match header.kind {
            Kind::Headers => self.headers(header, payload, out, answers)?,
            Kind::Continuation => self.continuation(header, payload, out, answers)?,
            Kind::Settings => self.settings(header, payload, out)?,
            Kind::WindowUpdate => self.window_update(header, payload, out, answers)?,
            Kind::Reset => {
                exactly::<4>(header, payload)?;
                self.opened(header.stream)?;
                self.answer(header.stream, Outcome::Failure, answers);
            }
            Kind::GoAway => self.go_away(header, payload, answers)?,
            Kind::Ping => {
                let payload = exactly::<8>(header, payload)?;
                if !header.has(ACK) {
                    wire::write(out, Kind::Ping, ACK, 0, &payload);
                }
            }
            Kind::Priority => drop(exactly::<5>(header, payload)?),
            Kind::PushPromise => return Err(error("a pushed answer, though we take none")),
            Kind::Data | Kind::Unknown => {}
        }
        Ok(Some(end))
    }

    /// Checks whether a frame may come now, and on that stream.
    fn check(&self, header: Header) -> Result<(), ProtocolError> {
        let Header { length, kind, stream, .. } = header;
        if length > MIN_MAX_FRAME {
            return Err(wire::size(header));
        }
        if !self.settings.known && (kind != Kind::Settings || header.has(ACK)) {
            return Err(error(format!("a frame {kind:?} where settings should come first")));
        }
        let continued = self.receiving.block.map(|block| block.stream);
        if continued != (kind == Kind::Continuation).then_some(stream) {
            return Err(error(format!("a frame {kind:?} inside a header block, or none begun")));
        }
        let fits = match kind {
            Kind::Settings | Kind::Ping | Kind::GoAway => stream == 0,
            Kind::Data | Kind::Headers | Kind::Priority | Kind::Reset => stream != 0,
            _ => true,
        };
        if fits { Ok(()) } else { Err(error(format!("a frame {kind:?} on stream {stream}"))) }
    }

    /// Checks that the peer may send on a stream, because we have opened it.
    fn opened(&self, stream: u32) -> Result<(), ProtocolError> {
        if stream % 2 == 1 && stream < self.next {
            Ok(())
        } else {
            Err(error(format!("a frame on stream {stream}, which nobody opened")))
        }
    }

    /// Takes the front of a DATA frame, with the length of its padding. The whole frame counts for
    /// the windows.
    fn data(
        &mut self,
        header: Header,
        payload: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<Option<usize>, ProtocolError> {
        let Header { length, stream: id, .. } = header;
        self.opened(id)?;
        let mut front = 0;
        if header.has(PADDED) {
            front = 1;
            if length == 0 {
                return Err(wire::size(header));
            }
            let Some(&padding) = payload.first() else { return Ok(None) };
            if usize::from(padding) >= length {
                return Err(wire::too_much_padding());
            }
        }
        let end = header.has(END_STREAM);
        self.receiving.data = Some(Data { stream: id, left: length - front, end });
        if count(&mut self.receiving.received, length)? {
            let room = std::mem::take(&mut self.receiving.received);
            wire::write_window(out, 0, room);
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            if stream.outcome.is_none() {
                self.fail(id, Code::Protocol, out, answers);
            } else if count(&mut stream.received, length)? && !end {
                wire::write_window(out, id, std::mem::take(&mut stream.received));
            }
        }
        Ok(Some(HEADER + front))
    }

    fn headers(
        &mut self,
        header: Header,
        payload: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), ProtocolError> {
        self.opened(header.stream)?;
        let fragment = wire::fragment(header, payload)?;
        let block = Block { stream: header.stream, end: header.has(END_STREAM) };
        if header.has(END_HEADERS) {
            return self.block(block, fragment, out, answers);
        }
        self.receiving.block = Some(block);
        self.receiving.fragments.clear();
        self.receiving.fragments.extend_from_slice(fragment);
        Ok(())
    }

    fn continuation(
        &mut self,
        header: Header,
        payload: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), ProtocolError> {
        let Receiving { block, fragments, .. } = &mut self.receiving;
        if fragments.len() + payload.len() > MAX_BLOCK {
            return Err(error(format!("a header block of more than {MAX_BLOCK} bytes")));
        }
        fragments.extend_from_slice(payload);
        if header.has(END_HEADERS)
            && let Some(block) = block.take()
        {
            let fragments = std::mem::take(fragments);
            self.block(block, &fragments, out, answers)?;
            self.receiving.fragments = fragments;
        }
        Ok(())
    }

    /// Handles a whole header block: an interim head, the final head, or the trailers.
    fn block(
        &mut self,
        Block { stream: id, end }: Block,
        fragments: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), ProtocolError> {
        let said = self.receiving.fields.decode(fragments);
        let said = said.map_err(|fault| error(format!("a header block with {fault}")))?;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        stream.grpc_ok = said.grpc_ok.or(stream.grpc_ok);
        let good = match (said.status, stream.outcome) {
            (Status::Absent, Some(_)) => end,
            (Status::Code(101), None) => false,
            (Status::Code(100..200), None) => !end,
            (Status::Code(code), None) => {
                stream.outcome = Some(Outcome::of_status(code));
                true
            }
            _ => false,
        };
        if !good {
            self.fail(id, Code::Protocol, out, answers);
        } else if end {
            self.ended(id, out, answers);
        }
        Ok(())
    }

    /// Handles the end of the peer's side of a stream.
    fn ended(&mut self, id: u32, out: &mut Vec<u8>, answers: &mut Vec<Answer>) {
        let Some(stream) = self.streams.get(&id) else { return };
        let Some(outcome) = stream.outcome else {
            return self.fail(id, Code::Protocol, out, answers);
        };
        let is_ok = !self.request.is_grpc || stream.grpc_ok == Some(true);
        let outcome = match outcome {
            Outcome::Success if !is_ok => Outcome::Failure,
            outcome => outcome,
        };
        // The peer does not want the rest of the body.
        if stream.unsent > 0 {
            wire::write_reset(out, id, Code::Cancel);
        }
        self.answer(id, outcome, answers);
    }

    fn settings(
        &mut self,
        header: Header,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        if header.has(ACK) {
            return exactly::<0>(header, payload).map(drop);
        }
        let before = i64::from(self.settings.window);
        self.settings.apply(payload)?;
        wire::write(out, Kind::Settings, ACK, 0, &[]);
        let change = i64::from(self.settings.window) - before;
        if change != 0 {
            for stream in self.streams.values_mut() {
                stream.window += change;
                if stream.window > MAX_31.into() {
                    return Err(error("settings that make a window too large"));
                }
            }
            self.send_stalled(out);
        }
        Ok(())
    }

    fn window_update(
        &mut self,
        header: Header,
        payload: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), ProtocolError> {
        let id = header.stream;
        let bytes = i64::from(u32::from_be_bytes(exactly(header, payload)?) & MAX_31);
        let most = i64::from(MAX_31);
        if id == 0 {
            self.window += bytes;
            if bytes == 0 || self.window > most {
                return Err(error("a connection's window that is too large, or grows by nothing"));
            }
            self.send_stalled(out);
            return Ok(());
        }
        self.opened(id)?;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.window += bytes;
            if bytes == 0 {
                self.fail(id, Code::Protocol, out, answers);
            } else if stream.window > most {
                self.fail(id, Code::FlowControl, out, answers);
            } else {
                self.send_body(id, out);
            }
        }
        Ok(())
    }

    /// Handles GOAWAY: the peer takes no more requests, and has not taken those after the last
    /// stream that it names.
    fn go_away(
        &mut self,
        header: Header,
        payload: &[u8],
        answers: &mut Vec<Answer>,
    ) -> Result<(), ProtocolError> {
        let last = payload.first_chunk().filter(|_| payload.len() >= 8);
        let last = u32::from_be_bytes(*last.ok_or_else(|| wire::size(header))?) & MAX_31;
        self.closing = true;
        let mut refused: Vec<_> = self.streams.keys().copied().filter(|id| *id > last).collect();
        refused.sort_unstable();
        for id in refused {
            self.answer(id, Outcome::Failure, answers);
        }
        Ok(())
    }
}

/// Counts bytes of a body. Returns whether to give the peer room for more, which is so when half of
/// the room is used.
fn count(received: &mut u32, bytes: usize) -> Result<bool, ProtocolError> {
    // The cast loses nothing, because a frame has at most the largest length.
    *received += bytes as u32;
    if *received > WINDOW {
        return Err(error("more of a body than there was room for"));
    }
    Ok(*received >= WINDOW / 2)
}
