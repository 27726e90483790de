//! The position within the bytes of a connection.

/// What comes next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum At {
    /// A request line; empty lines may come before it.
    #[default]
    Begin,
    /// The end of such an empty line.
    BeginLf,
    /// A line of a head.
    Line,
    /// The name of a field that matters. The number is how many bytes of it have come.
    Name(Field, usize),
    /// The rest of a line, which does not matter.
    Rest,
    /// The value of Content-Length.
    Length(Digits),
    /// The end of the head's empty line.
    HeadLf,
    /// A body, with the number of bytes that are left.
    Body(u64),
    /// A chunked body, with the number of bytes that are left of this chunk.
    Chunked(Chunk, u64),
    /// Bytes that cannot be understood, or should not be.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    ContentLength,
    TransferEncoding,
}

impl Field {
    /// The field's name with its colon. hyper allows no space before the colon.
    pub(super) fn name(self) -> &'static [u8] {
        match self {
            Self::ContentLength => b"content-length:",
            Self::TransferEncoding => b"transfer-encoding:",
        }
    }
}

/// The digits of a number, with spaces around it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Digits {
    pub(super) number: Option<u64>,
    pub(super) is_over: bool,
}

/// What was found in a head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: Option<u64>,
    pub(super) is_coded: bool,
}

/// hyper's states, with hyper's names (`proto/h1/decode.rs`). hyper is stricter than RFC 9112
/// requires, and whatever it refuses ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    Start,
    Size,
    SizeLws,
    Extension,
    SizeLf,
    Body,
    BodyCr,
    BodyLf,
    Trailer,
    TrailerLf,
    EndCr,
    EndLf,
}

pub(super) fn expect(byte: u8, expected: u8, then: At) -> At {
    if byte == expected { then } else { At::Lost }
}

/// How many of `bytes` belong to the `left` bytes that are missing, and how many are missing after
/// them.
pub(super) fn take(left: u64, bytes: &[u8]) -> (usize, u64) {
    let used = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (used, left - used as u64)
}
