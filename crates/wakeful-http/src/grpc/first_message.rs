//! How much of a body's first message has come.

use bytes::Buf;

/// How much of a body's first message is still to come. A message begins with a byte of flags and
/// four bytes of length.
#[derive(Debug, Default)]
pub(super) struct FirstMessage {
    /// How many bytes of this prefix were seen.
    seen: u8,
    length: u32,
    left: u32,
}

impl FirstMessage {
    pub(super) fn saw(&mut self, mut data: &[u8]) {
        while self.seen < 5 && data.has_remaining() {
            // The flags' byte is shifted out at the top.
            self.length = self.length << 8 | u32::from(data.get_u8());
            self.seen += 1;
            if self.seen == 5 {
                self.left = self.length;
            }
        }
        self.left = self.left.saturating_sub(u32::try_from(data.len()).unwrap_or(u32::MAX));
    }

    /// Has none of the message come, or all of it?
    pub(super) fn may_be_cut(&self) -> bool {
        self.seen == 0 || (self.seen == 5 && self.left == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::FirstMessage;

    #[test]
    fn only_the_first_message_is_protected_however_it_comes() {
        let bytes = [&[1, 0, 0, 1, 2][..], &[7; 258], &[0, 0, 0, 0, 9, 1]].concat();
        for piece in [1, 2, 3, 5, 7, 100, bytes.len()] {
            let (mut first, mut seen) = (FirstMessage::default(), 0);
            assert!(first.may_be_cut(), "nothing has come");
            for piece in bytes.chunks(piece) {
                first.saw(piece);
                seen += piece.len();
                assert_eq!(first.may_be_cut(), seen >= 5 + 258, "behind {seen} bytes");
            }
        }
        let mut empty = FirstMessage::default();
        empty.saw(&[0; 5]);
        assert!(empty.may_be_cut());
    }
}
