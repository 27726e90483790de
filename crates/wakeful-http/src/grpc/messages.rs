//! Where a body's messages begin and end.

use bytes::Buf;

/// A message begins with a byte of flags and four bytes of length.
const PREFIX: u8 = 5;

/// How much of a body's message is still to come.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Whether all of the first message has come.
    has_first: bool,
    /// How many bytes of the message's prefix were seen.
    seen: u8,
    length: u32,
    left: u32,
}

impl Messages {
    /// Returns the greatest length of the messages that begin in `data`.
    pub(super) fn saw(&mut self, mut data: &[u8]) -> u32 {
        let mut greatest = 0;
        while data.has_remaining() {
            if self.seen < PREFIX {
                // The flags' byte is shifted out at the top.
                self.length = self.length << 8 | u32::from(data.get_u8());
                self.seen += 1;
                if self.seen == PREFIX {
                    self.left = self.length;
                    greatest = greatest.max(self.length);
                }
            } else {
                let here = data.len().min(self.left as usize);
                data.advance(here);
                self.left -= here as u32;
            }
            if self.seen == PREFIX && self.left == 0 {
                *self = Self { has_first: true, ..Self::default() };
            }
        }
        greatest
    }

    /// Has none of the first message come, or all of it?
    pub(super) fn may_be_cut(&self) -> bool {
        self.has_first || self.seen == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Messages;

    #[test]
    fn only_the_first_message_is_protected_however_it_comes() {
        let bytes = [&[1, 0, 0, 1, 2][..], &[7; 258], &[0, 0, 0, 0, 9, 1]].concat();
        for piece in [1, 2, 3, 5, 7, 100, bytes.len()] {
            let (mut messages, mut seen) = (Messages::default(), 0);
            assert!(messages.may_be_cut(), "nothing has come");
            for piece in bytes.chunks(piece) {
                messages.saw(piece);
                seen += piece.len();
                assert_eq!(messages.may_be_cut(), seen >= 5 + 258, "behind {seen} bytes");
            }
        }
        let mut empty = Messages::default();
        empty.saw(&[0; 5]);
        assert!(empty.may_be_cut());
    }

    #[test]
    fn each_length_is_told_when_its_prefix_has_come() {
        let message = |length: u32| {
            let prefix = [&[0][..], &length.to_be_bytes()].concat();
            [prefix, vec![0xff; length as usize]].concat()
        };
        let bytes = [message(3), message(0), message(70_000), message(9), message(0)].concat();
        for piece in [1, 2, 3, 5, 7, 100] {
            let mut messages = Messages::default();
            let told: Vec<_> = bytes.chunks(piece).map(|piece| messages.saw(piece)).collect();
            let large = told.iter().position(|length| *length == 70_000).unwrap();
            assert_eq!(large, (8 + 5 + 5 - 1) / piece, "by {piece}");
            assert_eq!(told.iter().filter(|length| **length > 9).count(), 1);
            assert!(told[large + 1..].contains(&9));
        }
        assert_eq!(Messages::default().saw(&bytes), 70_000);
    }
}
