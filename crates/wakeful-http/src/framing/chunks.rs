//! Finds the end of a chunked body, for [`Framing`](super::Framing).
//!
//! It has the same states as hyper's decoder, without the data, because it must see the next head
//! at the same byte as hyper. It does not check hyper's limits (on extensions and trailers),
//! because beyond them hyper ends the connection.

use memchr::{memchr, memchr2};

use super::state::{At, Chunk, expect, take};

/// Advances by at least a byte. Returns by how many, and the new state.
pub(super) fn step(chunk: Chunk, left: u64, bytes: &[u8]) -> (usize, At) {
    let byte = bytes[0];
    let goes_on = |chunk| At::Chunked(chunk, left);
    let at = match chunk {
        Chunk::Start | Chunk::Size => match (char::from(byte).to_digit(16), byte) {
            (Some(digit), _) => {
                let size = left.checked_mul(16).and_then(|size| size.checked_add(digit.into()));
                size.map_or(At::Lost, |size| At::Chunked(Chunk::Size, size))
            }
            _ if chunk == Chunk::Start => At::Lost,
            (None, b' ' | b'\t') => goes_on(Chunk::SizeLws),
            (None, b';') => goes_on(Chunk::Extension),
            (None, b'\r') => goes_on(Chunk::SizeLf),
            _ => At::Lost,
        },
        Chunk::SizeLws => match byte {
            b' ' | b'\t' => goes_on(Chunk::SizeLws),
            b';' => goes_on(Chunk::Extension),
            b'\r' => goes_on(Chunk::SizeLf),
            _ => At::Lost,
        },
        Chunk::Extension => match memchr2(b'\r', b'\n', bytes) {
            Some(end) => return (end + 1, expect(bytes[end], b'\r', goes_on(Chunk::SizeLf))),
            None => return (bytes.len(), goes_on(Chunk::Extension)),
        },
        Chunk::SizeLf if left == 0 => expect(byte, b'\n', goes_on(Chunk::EndCr)),
        Chunk::SizeLf => expect(byte, b'\n', goes_on(Chunk::Body)),
        Chunk::Body => {
            let (used, left) = take(left, bytes);
            let next = if left == 0 { Chunk::BodyCr } else { Chunk::Body };
            return (used, At::Chunked(next, left));
        }
        Chunk::BodyCr => expect(byte, b'\r', goes_on(Chunk::BodyLf)),
        Chunk::BodyLf => expect(byte, b'\n', goes_on(Chunk::Start)),
        Chunk::Trailer => match memchr(b'\r', bytes) {
            Some(end) => return (end + 1, goes_on(Chunk::TrailerLf)),
            None => return (bytes.len(), goes_on(Chunk::Trailer)),
        },
        Chunk::TrailerLf => expect(byte, b'\n', goes_on(Chunk::EndCr)),
        Chunk::EndCr if byte == b'\r' => goes_on(Chunk::EndLf),
        Chunk::EndCr => goes_on(Chunk::Trailer),
        Chunk::EndLf => expect(byte, b'\n', At::Begin),
    };
    (1, at)
}
