//! Finds out where the requests of an HTTP/1 connection begin and end, independently of hyper, so
//! that a request with both Content-Length and Transfer-Encoding can be refused.
//!
//! RFC 9112 (6.1) gives a server the choice: refuse such a request, or use the coding and close.
//! hyper does the latter, and removes the length before a service sees the request. So a server
//! that refuses must read the bytes itself. Only the framing distinguishes a head from a body that
//! looks like a head, so [`Framing`] follows all bytes. It is a state of a few words, and is fed
//! with each read, in pieces of any size, before hyper gets the bytes.
//!
//! It counts the clean heads, and a request is served only if its head is among them. After the
//! point where hyper gives a connection up, it counts none, so if hyper continued, the request
//! would be refused. hyper checks names and values, and only requests that pass both checks are
//! served.
//!
//! `fuzzing` checks that it agrees with hyper. It costs a copy of what is read and a scan of the
//! heads; a server that does not ask for it
//! ([`Limits::ambiguous_length`](crate::Limits::ambiguous_length)) pays nothing.

mod chunks;
mod state;

use std::cell::RefCell;

use memchr::memchr;

use self::state::{At, Chunk, Digits, Field, Head, expect, take};
use crate::limits::AmbiguousLength;
use crate::limits::Limits;

/// See the module's documentation.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Framing {
    at: At,
    head: Head,
    /// The number of clean heads that were read and not asked for yet.
    clean: u64,
}

impl Framing {
    /// Makes it for an HTTP/1 connection, if the server refuses ambiguous lengths.
    pub(crate) fn wanted(limits: &Limits) -> Option<RefCell<Self>> {
        (limits.ambiguous_length == AmbiguousLength::Refuse).then(RefCell::default)
    }

    /// Called when hyper has a request. Returns whether its head is clean.
    pub(crate) fn next(&mut self) -> bool {
        let is_clean = self.clean > 0;
        self.clean = self.clean.saturating_sub(1);
        is_clean
    }

    /// Feeds it with bytes that were read.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.at != At::Lost {
            let used = self.step(bytes);
            bytes = &bytes[used..];
        }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn is_between_requests(&self) -> bool {
        matches!(self.at, At::Begin)
    }

    /// Advances by at least a byte. Returns by how many.
    fn step(&mut self, bytes: &[u8]) -> usize {
        let byte = bytes[0];
        self.at = match self.at {
            At::Begin => match byte {
                b'\r' => At::BeginLf,
                b'\n' => At::Begin,
                _ => At::Rest,
            },
            At::BeginLf => expect(byte, b'\n', At::Begin),
            At::Line => match byte {
                b'\r' => At::HeadLf,
                b'\n' => self.end_of_head(),
                b'c' | b'C' => At::Name(Field::ContentLength, 1),
                b't' | b'T' => At::Name(Field::TransferEncoding, 1),
                _ => At::Rest,
            },
            At::Name(field, matched) => self.name(field, matched, byte),
            At::Rest => match memchr(b'\n', bytes) {
                Some(end) => {
                    self.at = At::Line;
                    return end + 1;
                }
                None => return bytes.len(),
            },
            At::Length(digits) => self.length(digits, byte),
            At::HeadLf if byte == b'\n' => self.end_of_head(),
            At::HeadLf => At::Lost,
            At::Body(left) => {
                let (used, left) = take(left, bytes);
                self.at = if left == 0 { At::Begin } else { At::Body(left) };
                return used;
            }
            At::Chunked(chunk, left) => {
                let (used, at) = chunks::step(chunk, left, bytes);
                self.at = at;
                return used;
            }
            At::Lost => At::Lost,
        };
        1
    }

    fn name(&mut self, field: Field, matched: usize, byte: u8) -> At {
        let name = field.name();
        if byte.to_ascii_lowercase() != name[matched] {
            // A line without a colon is no field.
            return if byte == b'\n' { At::Lost } else { At::Rest };
        }
        match field {
            _ if matched + 1 < name.len() => At::Name(field, matched + 1),
            Field::ContentLength => At::Length(Digits::default()),
            Field::TransferEncoding => {
                self.head.is_coded = true;
                At::Rest
            }
        }
    }

    fn length(&mut self, digits: Digits, byte: u8) -> At {
        let Digits { number, is_over } = digits;
        match byte {
            b'0'..=b'9' if !is_over => {
                let more = number.unwrap_or(0).checked_mul(10);
                let more = more.and_then(|more| more.checked_add(u64::from(byte - b'0')));
                more.map_or(At::Lost, |more| At::Length(Digits { number: Some(more), is_over }))
            }
            b' ' | b'\t' | b'\r' => At::Length(Digits { number, is_over: number.is_some() }),
            b'\n' if number.is_some() && self.head.length.is_none_or(|it| Some(it) == number) => {
                self.head.length = number;
                At::Line
            }
            _ => At::Lost,
        }
    }

    /// At the end of a head, hyper calls its service, or returns an error.
    fn end_of_head(&mut self) -> At {
        let at = match std::mem::take(&mut self.head) {
            Head { length: Some(_), is_coded: true } => return At::Lost,
            // The only coding that hyper supports is `chunked`.
            Head { length: None, is_coded: true } => At::Chunked(Chunk::Start, 0),
            Head { length: None | Some(0), is_coded: false } => At::Begin,
            Head { length: Some(length), is_coded: false } => At::Body(length),
        };
        self.clean += 1;
        at
    }
}

#[cfg(test)]
mod tests;
