//! Finds the ends of a WebSocket's frames, so that a proxy that drains can send Close 1001 (RFC
//! 6455, 7.4.1) between two frames, as a server that ends does.
//!
//! It examines only the bytes to the client, and of these only the frames' headers. After the
//! proxy's own Close nothing from the backend goes to the client any more. The client's answer to
//! the Close is forwarded to the backend, which then ends the socket, too.

use std::io::Cursor;

use async_tungstenite::tungstenite::protocol::frame::FrameHeader;
use async_tungstenite::tungstenite::protocol::frame::coding::{Control, OpCode};

/// FIN and Close, with a payload of two bytes: 1001.
const GOING_AWAY: [u8; 4] = [0x88, 0x02, 0x03, 0xe9];

/// The frames that went to a client.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The header that has begun.
    header: Vec<u8>,
    /// How many bytes of the payload are still to come.
    left: u64,
    stage: Stage,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// A Close must be sent at the end of the frame.
    Ending,
    /// The Close was sent.
    Told,
    /// The backend has closed, or sends no valid frames.
    Left,
}

impl Frames {
    pub(super) fn end_soon(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Ending;
        }
    }

    /// The Close that must be sent to the client now. It is returned once.
    pub(super) fn farewell(&mut self) -> Option<&'static [u8]> {
        if self.stage != Stage::Ending || self.left > 0 || !self.header.is_empty() {
            return None;
        }
        self.stage = Stage::Told;
        Some(&GOING_AWAY)
    }

    /// The part of `piece` that goes to the client. If a Close must be sent, it ends with a frame,
    /// and the rest is dropped.
    pub(super) fn pass<'a>(&mut self, piece: &'a [u8]) -> &'a [u8] {
        let mut at = 0;
        while at < piece.len() {
            match self.stage {
                Stage::Told => return &piece[..at],
                Stage::Left => return piece,
                Stage::Open | Stage::Ending => {}
            }
            if self.stage == Stage::Ending && self.left == 0 && self.header.is_empty() {
                break;
            }
            if self.left > 0 {
                let here = usize::try_from(self.left).unwrap_or(usize::MAX).min(piece.len() - at);
                at += here;
                self.left -= here as u64;
            } else {
                self.header.push(piece[at]);
                at += 1;
                self.look_at_header();
            }
        }
        &piece[..at]
    }

    fn look_at_header(&mut self) {
        match FrameHeader::parse(&mut Cursor::new(&self.header)) {
            Ok(None) => return,
            Ok(Some((header, payload))) => {
                self.left = payload;
                if header.opcode == OpCode::Control(Control::Close) {
                    self.stage = Stage::Left;
                }
            }
            Err(_) => self.stage = Stage::Left,
        }
        self.header.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text of `length`, as servers send it.
    fn frame(length: usize) -> Vec<u8> {
        let mut frame = vec![0x81];
        match length {
            0..126 => frame.push(u8::try_from(length).unwrap()),
            126..65536 => {
                frame.push(126);
                frame.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
            }
            _ => {
                frame.push(127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        frame.resize(frame.len() + length, b'x');
        frame
    }

    #[test]
    fn the_goodbye_comes_between_two_frames_however_they_are_cut() {
        for length in [0, 1, 125, 126, 300, 70_000] {
            let frame = frame(length);
            for cut in [0, 1, 2, 3, 5, frame.len() / 2, frame.len() - 1] {
                // A short one has fewer places.
                let cut = if cut < frame.len() { cut } else { 0 };
                let mut frames = Frames::default();
                let two = [frame.clone(), frame[..cut].to_vec()].concat();
                assert_eq!(frames.pass(&two), two);
                frames.end_soon();
                let rest = [&frame[cut..], b"\x81\x01y"].concat();
                if cut == 0 {
                    assert_eq!(frames.farewell(), Some(&GOING_AWAY[..]));
                    assert_eq!(frames.pass(&rest), b"");
                } else {
                    assert_eq!(frames.farewell(), None, "{length} {cut}");
                    assert_eq!(frames.pass(&rest), &frame[cut..], "{length} {cut}");
                    assert_eq!(frames.farewell(), Some(&GOING_AWAY[..]));
                }
                assert_eq!(frames.farewell(), None);
                assert_eq!(frames.pass(&frame), b"");
            }
        }
    }

    #[test]
    fn a_backend_that_has_closed_by_itself_is_not_spoken_over() {
        let mut frames = Frames::default();
        assert_eq!(frames.pass(&[0x88, 2, 3, 0xe8]), [0x88, 2, 3, 0xe8]);
        frames.end_soon();
        assert_eq!(frames.farewell(), None);
    }

    #[test]
    fn what_are_no_frames_goes_on_as_it_is() {
        let mut frames = Frames::default();
        let text = [0x83, 0xff, 0xff, 1, 2, 3];
        assert_eq!(frames.pass(&text), text);
        frames.end_soon();
        assert_eq!(frames.pass(&text), text);
        assert_eq!(frames.farewell(), None);
    }
}
