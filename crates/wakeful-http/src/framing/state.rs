//! Where in what comes on a connection one is.

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
    /// The name of a field that matters, so many bytes of which have come.
    Name(Field, usize),
    /// What does not matter of a line.
    Rest,
    /// The value of Content-Length.
    Length(Digits),
    /// The end of the head's empty line.
    HeadLf,
    /// So many bytes of a body.
    Body(u64),
    /// A body in chunks; so many bytes are left of this one.
    Chunked(Chunk, u64),
    /// Nothing that could be understood, or that should be.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    ContentLength,
    TransferEncoding,
}

impl Field {
    /// hyper takes no space before the colon.
    pub(super) fn name(self) -> &'static [u8] {
        match self {
            Self::ContentLength => b"content-length:",
            Self::TransferEncoding => b"transfer-encoding:",
        }
    }
}

/// A number, with spaces around it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Digits {
    pub(super) number: Option<u64>,
    pub(super) is_over: bool,
}

/// What was seen of a head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: Option<u64>,
    pub(super) is_coded: bool,
}

/// hyper's states, by hyper's names (`proto/h1/decode.rs`): it is stricter than RFC 9112 has to be,
/// and whatever it refuses ends the connection.
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

/// How much of `bytes` belongs to what is left, and what is left then.
pub(super) fn take(left: u64, bytes: &[u8]) -> (usize, u64) {
    let used = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (used, left - used as u64)
}
