//! Frames as bytes: headers, the small frames that this side writes, and the padding and priority
//! around a payload.

use super::super::{Protocol, ProtocolError};

/// The largest payload that every peer takes, and that we take.
pub(in crate::protocol) const MIN_MAX_FRAME: usize = 16_384;
/// The length of a frame's header.
pub(super) const HEADER: usize = 9;
/// The largest value of a window or of a stream's number.
pub(super) const MAX_31: u32 = (1 << 31) - 1;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    Priority,
    Reset,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// An extension, which is ignored.
    Unknown,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Data,
        Self::Headers,
        Self::Priority,
        Self::Reset,
        Self::Settings,
        Self::PushPromise,
        Self::Ping,
        Self::GoAway,
        Self::WindowUpdate,
        Self::Continuation,
    ];
}

/// The reason why we end a stream.
#[derive(Debug, Clone, Copy)]
pub(super) enum Code {
    Protocol = 0x1,
    FlowControl = 0x3,
    Cancel = 0x8,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) length: usize,
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Header {
    /// Reads a header from the front of the input, if it is complete.
    pub(super) fn read(input: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, ref stream @ ..] = input.first_chunk::<HEADER>()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let kind = Kind::ALL.get(usize::from(kind)).copied().unwrap_or(Kind::Unknown);
        Some(Self { length, kind, flags, stream: u32::from_be_bytes(*stream) & MAX_31 })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        let length = u32::try_from(self.length).unwrap_or(u32::MAX).to_be_bytes();
        out.extend_from_slice(&length[1..]);
        out.extend_from_slice(&[self.kind as u8, self.flags]);
        out.extend_from_slice(&self.stream.to_be_bytes());
    }
}

/// Appends a frame.
pub(super) fn write(out: &mut Vec<u8>, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
    Header { length: payload.len(), kind, flags, stream }.write(out);
    out.extend_from_slice(payload);
}

/// Gives the peer more room for bodies. Stream 0 stands for the whole connection.
pub(super) fn write_window(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    write(out, Kind::WindowUpdate, 0, stream, &bytes.to_be_bytes());
}

/// Ends a stream before its time.
pub(super) fn write_reset(out: &mut Vec<u8>, stream: u32, code: Code) {
    write(out, Kind::Reset, 0, stream, &(code as u32).to_be_bytes());
}

/// The fragment of a header block in a HEADERS frame, without padding and priority.
pub(super) fn fragment(header: Header, payload: &[u8]) -> Result<&[u8], ProtocolError> {
    let (mut rest, mut padding) = (payload, 0);
    if header.has(PADDED) {
        let (&length, after) = rest.split_first().ok_or_else(|| size(header))?;
        (rest, padding) = (after, usize::from(length));
    }
    if header.has(PRIORITY) {
        rest = rest.get(5..).ok_or_else(|| size(header))?;
    }
    let end = rest.len().checked_sub(padding).ok_or_else(too_much_padding)?;
    Ok(&rest[..end])
}

/// Returns the payload of a frame that must have exactly `N` bytes.
pub(super) fn exactly<const N: usize>(
    header: Header,
    payload: &[u8],
) -> Result<[u8; N], ProtocolError> {
    payload.try_into().map_err(|_| size(header))
}

pub(super) fn size(header: Header) -> ProtocolError {
    error(format!("a frame {:?} of {} bytes", header.kind, header.length))
}

pub(super) fn too_much_padding() -> ProtocolError {
    error("a frame with more padding than payload")
}

pub(super) fn error(what: impl Into<String>) -> ProtocolError {
    ProtocolError::new(Protocol::Http2, what)
}
