//! HTTP/2's frames as they go by (RFC 9113, 4.1): their headers, and what changes a window.
//!
//! A reader is fed all bytes of one direction, in pieces of any size. It keeps no more than one
//! header and one setting (and the text of a GOAWAY). It reports each frame when its header is
//! complete, and each window's change when its bytes are. It checks nothing, because h2 checks the
//! frames.

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
#[cfg(test)]
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

const HEADER_LENGTH: usize = 9;
/// The length of the preface with which a client begins.
const PREFACE_LENGTH: u32 = 24;

/// A longer text of a GOAWAY is not needed.
const LONGEST_FAREWELL: usize = 64;

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// The length of what follows the header.
    pub(crate) length: u32,
    pub(crate) stream: u32,
}

/// What a reader has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The header of a frame.
    Frame(Frame),
    /// In a WINDOW_UPDATE: how many bytes more a stream may have, or the connection (stream 0).
    Room { stream: u32, bytes: u32 },
    /// In a SETTINGS: how many bytes each stream may have before its first WINDOW_UPDATE.
    InitialWindow(u32),
}

/// The setting of [`Found::InitialWindow`].
const INITIAL_WINDOW_SIZE: u16 = 4;

/// The longest value that is reported: one setting.
const LONGEST_VALUE: usize = 6;

/// The position of a reader in the bytes of one direction.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    header: [u8; HEADER_LENGTH],
    /// How many bytes of `header` were read.
    have: usize,
    /// How many bytes come before the next header.
    skip: u32,
    /// The beginning of the last GOAWAY.
    farewell: Vec<u8>,
    /// How many more bytes of the GOAWAY to keep.
    keep: usize,
    /// The value that is read, how many of its bytes were read, and how long such a value is. The
    /// length is 0 if the frame has no values to report.
    value: [u8; LONGEST_VALUE],
    value_has: usize,
    value_length: usize,
}

impl FrameReader {
    /// A reader of what a server sends.
    pub(crate) fn of_server() -> Self {
        Self::default()
    }

    /// A reader of what a client sends.
    pub(crate) fn of_client() -> Self {
        Self { skip: PREFACE_LENGTH, ..Self::default() }
    }

    /// Are the bytes so far a whole number of frames?
    pub(crate) fn is_between_frames(&self) -> bool {
        self.have == 0 && self.skip == 0
    }

    /// Has the last frame's header come, but not all that follows it?
    pub(crate) fn is_within_frame(&self) -> bool {
        self.have == 0 && self.skip > 0
    }

    /// The text of the last GOAWAY, after its numbers.
    pub(crate) fn farewell(&self) -> &[u8] {
        self.farewell.get(8..).unwrap_or_default()
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Found)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let count = bytes.len().min(self.skip as usize);
                let kept = count.min(self.keep);
                self.farewell.extend_from_slice(&bytes[..kept]);
                self.keep -= kept;
                if self.value_length > 0 {
                    self.read_values(&bytes[..count], &mut each);
                }
                bytes = &bytes[count..];
                self.skip -= u32::try_from(count).unwrap_or(self.skip);
                continue;
            }
            let count = bytes.len().min(HEADER_LENGTH - self.have);
            self.header[self.have..self.have + count].copy_from_slice(&bytes[..count]);
            self.have += count;
            bytes = &bytes[count..];
            if self.have == HEADER_LENGTH {
                self.have = 0;
                let frame = self.frame();
                self.skip = frame.length;
                if frame.kind == GOAWAY {
                    self.farewell.clear();
                    self.keep = LONGEST_FAREWELL.min(frame.length as usize);
                }
                self.value_has = 0;
                self.value_length = match frame.kind {
                    WINDOW_UPDATE => 4,
                    SETTINGS => LONGEST_VALUE,
                    _ => 0,
                };
                each(Found::Frame(frame));
            }
        }
    }

    /// The frame whose header was read last.
    fn frame(&self) -> Frame {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = self.header;
        let length = u32::from_be_bytes([0, l0, l1, l2]);
        let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
        Frame { kind, flags, length, stream }
    }

    /// Reads a piece of a WINDOW_UPDATE or of a SETTINGS.
    fn read_values(&mut self, piece: &[u8], each: &mut impl FnMut(Found)) {
        for byte in piece {
            self.value[self.value_has] = *byte;
            self.value_has += 1;
            if self.value_has < self.value_length {
                continue;
            }
            self.value_has = 0;
            let [v0, v1, v2, v3, v4, v5] = self.value;
            let Frame { kind, stream, .. } = self.frame();
            if kind == WINDOW_UPDATE {
                let bytes = u32::from_be_bytes([v0 & 0x7f, v1, v2, v3]);
                each(Found::Room { stream, bytes });
            } else if u16::from_be_bytes([v0, v1]) == INITIAL_WINDOW_SIZE {
                each(Found::InitialWindow(u32::from_be_bytes([v2, v3, v4, v5])));
            }
        }
    }
}

/// A GOAWAY as the last frame to a client. Streams up to `last_stream` may have been handled.
pub(crate) fn goaway(last_stream: u32, error: u32) -> [u8; 17] {
    let mut frame = [0; 17];
    frame[2] = 8;
    frame[3] = GOAWAY;
    frame[9..13].copy_from_slice(&last_stream.to_be_bytes());
    frame[13..].copy_from_slice(&error.to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_however_their_bytes_are_cut() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]);
        bytes.extend([0, 0, 3, DATA, 1, 0x80, 0, 1, 2, 7, 7, 7]);
        bytes.extend([0, 0, 12, GOAWAY, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 11]);
        bytes.extend(b"calm");
        let expected = [
            Frame { kind: SETTINGS, flags: 0, length: 0, stream: 0 },
            Frame { kind: DATA, flags: 1, length: 3, stream: 0x102 },
            Frame { kind: GOAWAY, flags: 0, length: 12, stream: 0 },
        ];
        for size in 1..=bytes.len() {
            let (mut reader, mut found) = (FrameReader::of_client(), Vec::new());
            for piece in bytes.chunks(size) {
                reader.feed(piece, |it| found.push(it));
            }
            assert_eq!(found, expected.map(Found::Frame), "in pieces of {size}");
            assert!(reader.is_between_frames());
            assert_eq!(reader.farewell(), b"calm");
        }
    }

    #[test]
    fn changes_of_windows_are_found_however_their_bytes_are_cut() {
        let mut bytes = vec![0, 0, 18, SETTINGS, 0, 0, 0, 0, 0];
        // MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, and one that nobody knows.
        bytes.extend([0, 3, 0, 0, 0, 100, 0, 4, 0, 1, 0, 2, 4, 0, 0, 4, 0, 4]);
        // The first bit has no meaning.
        bytes.extend([0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, 3, 0x80, 0, 2, 1]);
        bytes.extend([0, 0, 4, DATA, 0, 0, 0, 0, 3, 0, 4, 0, 4]);
        bytes.extend([0, 0, 4, WINDOW_UPDATE, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]);
        let expected = [
            Found::InitialWindow(0x1_0002),
            Found::Room { stream: 3, bytes: 0x201 },
            Found::Room { stream: 0, bytes: (1 << 31) - 1 },
        ];
        for size in 1..=bytes.len() {
            let (mut reader, mut found) = (FrameReader::of_server(), Vec::new());
            for piece in bytes.chunks(size) {
                reader.feed(piece, |it| found.push(it));
            }
            found.retain(|found| !matches!(found, Found::Frame(_)));
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }
}
