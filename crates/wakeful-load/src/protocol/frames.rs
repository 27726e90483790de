//! Frames: a length of four bytes, big-endian, and a payload of that length. The peer sends it back
//! unchanged.
//!
//! A payload carries its request's key as eight little-endian bytes: at its front if it has at
//! least eight bytes, and also at its end if it has at least sixteen. An answer with another
//! length, or with other bytes in the first or last eight, is a failure: it belongs to another
//! request, or was damaged on the way.
//!
//! Payloads are compared and dropped as they arrive. Nothing is allocated for an announced length.

use std::sync::Arc;

use super::{
    Answer, Conversation, InOrder, InvalidTemplate, Outcome, Protocol, ProtocolError, Template,
};

/// The largest length of a payload, in bytes.
pub(crate) const MAX_LENGTH: usize = 16 << 20;

const PREFIX: usize = 4;
const STAMP: usize = 8;

/// A conversation in [`Protocol::Frames`].
#[derive(Debug, Clone)]
pub struct Frames {
    /// The length and the payload, in which the stamps are not set yet.
    prepared: Arc<[u8]>,
    keys: InOrder,
    /// The answer that is being received.
    current: Option<Payload>,
}

#[derive(Debug, Clone)]
struct Payload {
    length: usize,
    arrived: usize,
    /// The bytes with which the payload has to begin. `tail` has those with which it has to end. Of
    /// a payload shorter than eight bytes, only that many count.
    head: [u8; STAMP],
    tail: [u8; STAMP],
    good: bool,
}

impl Frames {
    /// Makes a conversation that sends the template's body.
    ///
    /// # Errors
    /// The body is longer than a frame may be.
    pub fn new(template: &Template) -> Result<Self, InvalidTemplate> {
        let length = template.body.len();
        let prefix = u32::try_from(length).ok().filter(|_| length <= MAX_LENGTH);
        let prefix = prefix.ok_or(InvalidTemplate::PayloadTooLong(length))?;
        let prepared = [&prefix.to_be_bytes(), &template.body[..]].concat().into();
        Ok(Self { prepared, keys: InOrder::default(), current: None })
    }

    fn payload(&self) -> &[u8] {
        &self.prepared[PREFIX..]
    }

    /// Starts to receive an answer of `length` bytes to the request with the key `key`.
    fn begin(&self, length: usize, key: u64) -> Payload {
        let sent = self.payload();
        let edge = sent.len().min(STAMP);
        let (mut head, mut tail) = ([0; STAMP], [0; STAMP]);
        // Both ends are stamped like the request, so that short payloads need no rules of their
        // own.
        let mut ends = [0; 2 * STAMP];
        let shown = sent.len().min(2 * STAMP);
        let half = shown / 2;
        ends[..half].copy_from_slice(&sent[..half]);
        ends[half..shown].copy_from_slice(&sent[sent.len() - (shown - half)..]);
        stamp(&mut ends[..shown], key);
        head[..edge].copy_from_slice(&ends[..edge]);
        tail[..edge].copy_from_slice(&ends[shown - edge..shown]);
        Payload { length, arrived: 0, head, tail, good: length == sent.len() }
    }
}

/// Writes the key at both ends of the payload, where it fits.
fn stamp(payload: &mut [u8], key: u64) {
    let key = key.to_le_bytes();
    if let Some(front) = payload.first_chunk_mut() {
        *front = key;
    }
    if payload.len() >= 2 * STAMP
        && let Some(back) = payload.last_chunk_mut()
    {
        *back = key;
    }
}

impl Payload {
    /// Takes the part of the payload that `input` contains. Returns the length of that part.
    fn take(&mut self, input: &[u8]) -> usize {
        let taken = input.len().min(self.length - self.arrived);
        if self.good {
            let edge = self.length.min(STAMP);
            let head = self.is_at(0, &self.head[..edge], &input[..taken]);
            let tail = self.is_at(self.length - edge, &self.tail[..edge], &input[..taken]);
            self.good = head && tail;
        }
        self.arrived += taken;
        taken
    }

    /// Whether `chunk`, which has just arrived, agrees with the bytes that are expected at
    /// `offset`, as far as the two overlap.
    fn is_at(&self, offset: usize, expected: &[u8], chunk: &[u8]) -> bool {
        let from = offset.max(self.arrived);
        let to = (offset + expected.len()).min(self.arrived + chunk.len());
        from >= to
            || expected[from - offset..to - offset] == chunk[from - self.arrived..to - self.arrived]
    }
}

impl Conversation for Frames {
    fn open(&mut self, _out: &mut Vec<u8>) {}

    fn may_request(&self) -> bool {
        true
    }

    fn request(&mut self, out: &mut Vec<u8>) -> u64 {
        let key = self.keys.ask();
        let start = out.len() + PREFIX;
        out.extend_from_slice(&self.prepared);
        stamp(&mut out[start..], key);
        key
    }

    fn receive(
        &mut self,
        input: &[u8],
        _out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<usize, ProtocolError> {
        let error = |what: String| ProtocolError::new(Protocol::Frames, what);
        let mut taken = 0;
        loop {
            let rest = &input[taken..];
            let mut payload = if let Some(payload) = self.current.take() {
                payload
            } else {
                let Some(prefix) = rest.first_chunk() else { return Ok(taken) };
                let length = u32::from_be_bytes(*prefix) as usize;
                if length > MAX_LENGTH {
                    return Err(error(format!("a frame of {length} bytes; at most {MAX_LENGTH}")));
                }
                let key = self.keys.waiting();
                let key = key.ok_or_else(|| error("a frame that nobody asked for".into()))?;
                taken += PREFIX;
                self.begin(length, key)
            };
            taken += payload.take(&input[taken..]);
            if payload.arrived < payload.length {
                self.current = Some(payload);
                return Ok(taken);
            }
            self.keys.answer(Outcome::of(payload.good), answers);
        }
    }

    fn close(&mut self, _answers: &mut Vec<Answer>) {}

    fn is_closing(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::tests::{outcomes, take};

    fn asked(size: usize, requests: usize) -> (Frames, Vec<u8>) {
        let mut frames = Frames::new(&Template::of_size(size)).unwrap();
        let mut out = Vec::new();
        for key in 0..requests {
            assert_eq!(frames.request(&mut out), key as u64);
        }
        (frames, out)
    }

    #[test]
    fn an_echo_is_a_success_at_every_size() {
        for size in (0..40).chain([1000]) {
            let (frames, sent) = asked(size, 300);
            for step in [1, 3, 7, sent.len()] {
                let (answers, left) = take(&mut frames.clone(), &sent, step).unwrap();
                assert_eq!(left, 0);
                assert!(answers.iter().map(|it| it.key).eq(0..300));
                assert!(answers.iter().all(|it| it.outcome == Outcome::Success), "size {size}");
            }
        }
    }

    #[test]
    fn requests_bear_their_keys_at_both_ends() {
        let (_, sent) = asked(20, 2);
        assert_eq!(sent[..4], [0, 0, 0, 20]);
        assert_eq!(sent[24 + 4..24 + 12], 1u64.to_le_bytes());
        assert_eq!(&sent[24 + 12..24 + 16], b"ijkl");
        assert_eq!(sent[24 + 16..], 1u64.to_le_bytes());
    }

    #[test]
    fn a_changed_byte_at_either_end_and_another_length_are_failures() {
        for at in [0, 7, 12, 19] {
            let (mut frames, mut sent) = asked(20, 2);
            sent[4 + at] ^= 1;
            let (answers, _) = take(&mut frames, &sent, 1).unwrap();
            assert_eq!(outcomes(&answers), "-+", "byte {at}");
        }
        let (mut frames, sent) = asked(20, 2);
        let answer = [&[0, 0, 0, 2, 1, 2][..], &sent[24..]].concat();
        assert_eq!(outcomes(&take(&mut frames, &answer, 5).unwrap().0), "-+");
        // Each request gets the answer to the other one.
        let (mut frames, sent) = asked(20, 2);
        let answer = [&sent[24..], &sent[..24]].concat();
        assert_eq!(outcomes(&take(&mut frames, &answer, 5).unwrap().0), "--");
    }

    #[test]
    fn too_long_and_unasked_frames_are_errors() {
        let (mut frames, _) = asked(20, 1);
        assert!(take(&mut frames, &[1, 0, 0, 1], 4).unwrap_err().what.contains("16777217"));
        let (mut frames, sent) = asked(20, 0);
        assert!(sent.is_empty());
        assert!(take(&mut frames, &[0, 0, 0, 0], 4).is_err());
        let long = Template { body: vec![0; MAX_LENGTH + 1], ..Template::default() };
        let refused = Frames::new(&long).unwrap_err();
        assert_eq!(refused, InvalidTemplate::PayloadTooLong(MAX_LENGTH + 1));
    }
}
