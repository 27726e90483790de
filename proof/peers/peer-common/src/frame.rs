//! The echo protocol: a 4-byte big-endian length, then that many bytes of payload. All peers use
//! the same buffer and the same scan.

/// The number of bytes of the length before each payload.
pub const HEADER: usize = 4;

/// The largest payload a frame may announce; a larger one ends the connection.
pub const MAX_PAYLOAD: usize = 16 << 20;

/// The initial size of a connection's read buffer, in bytes.
pub const INITIAL_CAPACITY: usize = 16 << 10;

/// The bytes received on one connection and not yet answered.
///
/// The first byte is always the start of a frame. Answers are written directly from this buffer,
/// because an answer is the request itself.
#[derive(Debug)]
pub struct FrameBuffer {
    /// Always initialised up to its length, so that reading needs no `unsafe`.
    storage: Vec<u8>,
    received: usize,
}

/// The result of [`frames`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frames {
    /// Where the last complete frame ends; 0 if there is none.
    pub end: usize,
    /// Whether the frame that begins there is larger than the protocol allows.
    pub oversized: bool,
}

/// Finds all complete frames. They are contiguous, from the front.
#[must_use]
pub fn frames(received: &[u8]) -> Frames {
    let mut end = 0;
    while let Some(header) = received[end..].first_chunk::<HEADER>() {
        let payload = u32::from_be_bytes(*header) as usize;
        if payload > MAX_PAYLOAD {
            return Frames { end, oversized: true };
        }
        let next = end + HEADER + payload;
        if next > received.len() {
            break;
        }
        end = next;
    }
    Frames { end, oversized: false }
}

impl Default for FrameBuffer {
    fn default() -> Self {
        Self { storage: vec![0; INITIAL_CAPACITY], received: 0 }
    }
}

impl FrameBuffer {
    /// The free space to read into; never empty.
    ///
    /// The buffer doubles only when it is full of bytes that did arrive. So a client that merely
    /// announces a large frame costs no memory.
    pub fn space(&mut self) -> &mut [u8] {
        if self.received == self.storage.len() {
            self.storage.resize(self.storage.len() * 2, 0);
        }
        &mut self.storage[self.received..]
    }

    /// Accounts for `count` bytes that were read into [`space`](Self::space).
    pub fn add_received(&mut self, count: usize) {
        self.received += count;
        debug_assert!(self.received <= self.storage.len());
    }

    /// The bytes received and not yet discarded.
    #[must_use]
    pub fn received(&self) -> &[u8] {
        &self.storage[..self.received]
    }

    /// Finds all complete frames.
    #[must_use]
    pub fn frames(&self) -> Frames {
        frames(self.received())
    }

    /// Drops the first `count` bytes, which have been answered, and moves the
    /// partial frame after them, if any, to the front.
    pub fn discard(&mut self, count: usize) {
        self.storage.copy_within(count..self.received, 0);
        self.received -= count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer_with(bytes: &[u8]) -> FrameBuffer {
        let mut buffer = FrameBuffer::default();
        for chunk in bytes.chunks(1000) {
            buffer.space()[..chunk.len()].copy_from_slice(chunk);
            buffer.add_received(chunk.len());
        }
        buffer
    }

    #[test]
    fn finds_every_complete_frame_and_keeps_the_rest() {
        let mut buffer = buffer_with(b"\0\0\0\x02hi\0\0\0\0\0\0\0\x03pa");
        assert_eq!(buffer.frames(), Frames { end: 10, oversized: false });
        buffer.discard(10);
        assert_eq!(buffer.received(), b"\0\0\0\x03pa");
        assert_eq!(buffer.frames().end, 0);
    }

    #[test]
    fn a_partial_header_is_no_frame() {
        assert_eq!(buffer_with(b"\x7f\xff\xff").frames(), Frames { end: 0, oversized: false });
    }

    #[test]
    fn the_limit_itself_is_allowed_and_one_more_is_not() {
        let allowed = buffer_with(b"\x01\0\0\0");
        assert!(!allowed.frames().oversized);
        let refused = buffer_with(b"\0\0\0\x01x\x01\0\0\x01");
        assert_eq!(refused.frames(), Frames { end: 5, oversized: true });
    }

    #[test]
    fn grows_with_the_bytes_and_not_with_the_claim() {
        let mut buffer = buffer_with(b"\x01\0\0\0");
        assert_eq!(buffer.space().len(), INITIAL_CAPACITY - HEADER);
        buffer.add_received(INITIAL_CAPACITY - HEADER);
        assert_eq!(buffer.space().len(), INITIAL_CAPACITY);
    }
}
