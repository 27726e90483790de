//! Refuses frames whose length takes more bytes than necessary (RFC 6455, 5.2), which tungstenite
//! does not do. A frame that two programs read differently may be used for an attack on one of
//! them. Frames for which the process has no memory are refused, too, and control frames that are
//! too long: tungstenite reserves all of a frame, and ends the process if it cannot.
//!
//! [`Lengths`] follows the headers of a client's frames, a few bytes of each, and skips the
//! payloads.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};

use crate::memory;
use crate::read_ration::ReadRation;
use crate::upgrade::Upgraded;

/// The largest message, and frame, that a setting allows.
pub(super) const GREATEST_SIZE: usize = 1 << 30;

/// The longest payload of a ping, a pong or a Close (RFC 6455, 5.5).
pub(super) const LONGEST_CONTROL: usize = 125;

/// Why a frame is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("the length of a frame is not written in the fewest bytes")]
    NotMinimal,
    #[error("a control frame has more than 125 bytes")]
    LongControl,
    #[error("no memory is left for a frame of this length")]
    NoMemory,
}

/// Bits of a frame's first byte.
const IS_LAST: u8 = 0x80;
const IS_CONTROL: u8 = 0x08;

/// The position in a frame of the client.
#[derive(Debug, Default)]
struct Lengths {
    /// The header so far: its first two bytes, the extended length, and the mask.
    header: [u8; 14],
    held: usize,
    /// How many bytes of the payload are still to come.
    left: u64,
    /// How many bytes the frames of the message so far have, if it is not over.
    message: u64,
}

impl Lengths {
    /// # Errors
    /// A frame is refused. This many of the bytes come before it.
    fn follow(&mut self, all: &[u8]) -> Result<(), (usize, Refused)> {
        let (mut bytes, mut before) = (all, 0);
        while !bytes.is_empty() {
            if self.left > 0 {
                let skipped = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= skipped as u64;
                bytes = &bytes[skipped..];
                continue;
            }
            if self.held == 0 {
                before = all.len() - bytes.len();
            }
            self.header[self.held] = bytes[0];
            self.held += 1;
            bytes = &bytes[1..];
            self.take_header().map_err(|refused| (before, refused))?;
        }
        Ok(())
    }

    /// Handles the header if it is complete.
    fn take_header(&mut self) -> Result<(), Refused> {
        let [first, second, ..] = self.header;
        let longer = match second & 0x7f {
            _ if self.held < 2 => return Ok(()),
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if second & 0x80 == 0 { 0 } else { 4 };
        if self.held < 2 + longer + mask {
            return Ok(());
        }
        let written = &self.header[2..2 + longer];
        let length = written.iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
        self.left = match longer {
            0 => u64::from(second & 0x7f),
            2 if length < 126 => return Err(Refused::NotMinimal),
            8 if length <= u64::from(u16::MAX) => return Err(Refused::NotMinimal),
            _ => length,
        };
        self.held = 0;
        self.take_part(first)
    }

    /// Handles the rest of a frame's header: the frame is a message, a part of one, or a control
    /// frame, which may come between parts.
    fn take_part(&mut self, first: u8) -> Result<(), Refused> {
        if first & IS_CONTROL != 0 {
            // tungstenite would reserve the payload first.
            let is_long = self.left > LONGEST_CONTROL as u64;
            return if is_long { Err(Refused::LongControl) } else { Ok(()) };
        }
        let is_first = self.message == 0;
        self.message = self.message.saturating_add(self.left);
        // The parts are joined in a buffer that doubles when it is full.
        let needs = if is_first { self.left } else { self.message.saturating_mul(2) };
        if first & IS_LAST != 0 {
            self.message = 0;
        }
        // A frame beyond the greatest size is too large for any message, and is refused without
        // memory for it. A message beyond that is refused when its frame is there.
        let needs = usize::try_from(needs).unwrap_or(usize::MAX).min(2 * GREATEST_SIZE);
        if self.left <= GREATEST_SIZE as u64 && !memory::is_there_for(needs) {
            return Err(Refused::NoMemory);
        }
        Ok(())
    }
}

/// A connection whose frames are followed as they are read.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) inner: Upgraded,
    lengths: Lengths,
    ration: ReadRation,
    /// The next frame is refused. What came before it was read.
    refused: Option<Refused>,
}

impl Followed {
    pub(super) fn new(inner: Upgraded) -> Self {
        let (lengths, ration) = (Lengths::default(), ReadRation::default());
        Self { inner, lengths, ration, refused: None }
    }
}

impl AsyncRead for Followed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Self { inner, lengths, ration, refused } = &mut *self;
        let refused = match *refused {
            Some(refused) => refused,
            None => {
                let room = buf.len();
                let read = ready!(ration.give(room, cx, |cx| Pin::new(inner).poll_read(cx, buf)))?;
                let Err((before, now)) = lengths.follow(&buf[..read]) else {
                    return Poll::Ready(Ok(read));
                };
                *refused = Some(now);
                // The messages before the frame are whole.
                if before > 0 {
                    return Poll::Ready(Ok(before));
                }
                now
            }
        };
        Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, refused)))
    }
}

impl AsyncWrite for Followed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.inner), cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write_vectored(Pin::new(&mut self.inner), cx, slices)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.inner), cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_close(Pin::new(&mut self.inner), cx)
    }
}

#[cfg(test)]
mod tests {
    use super::{Lengths, Refused};

    /// A masked frame whose length takes this many more bytes.
    fn frame(longer: usize, length: u64) -> Vec<u8> {
        let second = match longer {
            0 => length as u8,
            2 => 126,
            _ => 127,
        };
        let mut frame = vec![0x82, 0x80 | second];
        frame.extend_from_slice(&length.to_be_bytes()[8 - longer..]);
        frame.extend_from_slice(&[1, 2, 3, 4]);
        frame.resize(frame.len() + length as usize, 0xff);
        frame
    }

    #[test]
    fn only_the_fewest_bytes_will_do_however_they_come() {
        for (longer, length, is_right) in [
            (0, 0, true),
            (0, 125, true),
            (2, 125, false),
            (2, 126, true),
            (2, 65_535, true),
            (8, 65_535, false),
            (8, 0, false),
            (8, 65_536, true),
        ] {
            // After a frame that is right.
            let bytes = [frame(2, 300), frame(longer, length), frame(0, 3)].concat();
            for piece in [1, 3, 7, bytes.len()] {
                let mut lengths = Lengths::default();
                let followed = bytes.chunks(piece).try_for_each(|piece| lengths.follow(piece));
                assert_eq!(followed.is_ok(), is_right, "{length} in {longer} more, by {piece}");
            }
        }
    }

    #[test]
    fn a_control_frame_has_at_most_125_bytes_and_may_come_between_parts() {
        let (first, mut ping, mut last) = (frame(2, 300), frame(0, 125), frame(0, 3));
        ping[0] = 0x89;
        last[0] = 0x80;
        let mut part = first.clone();
        part[0] = 0x02;
        let whole = [part, ping.clone(), last].concat();
        assert_eq!(Lengths::default().follow(&whole), Ok(()));
        for opcode in [0x88, 0x89, 0x8a] {
            let mut long = frame(2, 126);
            long[0] = opcode;
            let bytes = [first.clone(), long].concat();
            let refused = Lengths::default().follow(&bytes);
            assert_eq!(refused, Err((first.len(), Refused::LongControl)));
        }
    }
}
