//! Frames of one direction of a connection.

use std::sync::Arc;
use std::{io, mem};

use crate::buffers::{Budget, Charge, FREE, is_some_left};

/// The largest payload, in bytes.
pub const MAX_PAYLOAD: usize = 16 * 1024 * 1024;

const HEADER: usize = 4;
/// The size of a connection's buffer at first, and again after a large frame.
const BUFFER: usize = FREE;
/// No frame needs a larger one.
const LARGEST_BUFFER: usize = HEADER + MAX_PAYLOAD;

/// Bytes that were read and not passed on yet: whole frames, and the beginning of the next one.
pub(super) struct Frames {
    buffer: Vec<u8>,
    filled: usize,
    budget: Arc<Budget>,
    charge: Charge,
}

impl Frames {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { buffer: Vec::new(), filled: 0, budget, charge: Charge::default() }
    }

    /// Begins with bytes that were read before, and with what they take from `budget`.
    ///
    /// # Errors
    /// `budget` has no room for them.
    pub(super) fn behind(
        unread: Vec<u8>,
        mut charge: Charge,
        budget: Arc<Budget>,
    ) -> io::Result<Self> {
        let filled = unread.len();
        let mut buffer = unread;
        if !charge.cover(&budget, filled.max(BUFFER)) {
            return Err(no_room());
        }
        enlarge(&mut buffer, filled.max(BUFFER))?;
        Ok(Self { buffer, filled, budget, charge })
    }

    /// Takes the bytes, for [`behind`](Self::behind), in their own buffer. The charge must move
    /// with them.
    pub(super) fn take(&mut self) -> (Vec<u8>, Charge) {
        let mut unread = mem::take(&mut self.buffer);
        unread.truncate(mem::take(&mut self.filled));
        (unread, mem::take(&mut self.charge))
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// The space for the next read. It is never empty.
    ///
    /// # Errors
    /// The frames of all connections use all the memory that they may use, or there is hardly any
    /// more.
    #[inline]
    pub(super) fn space(&mut self) -> io::Result<&mut [u8]> {
        if self.filled == self.buffer.len() {
            self.grow()?;
        }
        Ok(&mut self.buffer[self.filled..])
    }

    #[cold]
    fn grow(&mut self) -> io::Result<()> {
        // The buffer grows by what has come, and not by what a header claims.
        let larger = (2 * self.filled).clamp(BUFFER, LARGEST_BUFFER);
        if !self.charge.cover(&self.budget, larger) {
            return Err(no_room());
        }
        enlarge(&mut self.buffer, larger)
    }

    /// Notes that `count` bytes were read into [`space`](Self::space).
    #[inline]
    pub(super) fn add(&mut self, count: usize) {
        self.filled += count;
    }

    /// Called at the end of the stream. An incomplete frame is an error.
    pub(super) fn end(&self) -> io::Result<()> {
        if self.is_empty() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// How many bytes are whole frames. If a frame that is too long follows them, it is an error
    /// only after they are [consumed](Self::consume), so that they are answered.
    ///
    /// # Errors
    /// The first frame is too long.
    #[inline]
    pub(super) fn complete(&self) -> io::Result<usize> {
        let mut complete = 0;
        loop {
            let rest = &self.bytes()[complete..];
            let Some(payload) = payload(rest) else { return Ok(complete) };
            if payload > MAX_PAYLOAD && complete == 0 {
                return Err(too_long(payload));
            }
            if rest.len() < HEADER + payload {
                return Ok(complete);
            }
            complete += HEADER + payload;
        }
    }

    /// Removes the first `count` bytes, which are whole frames.
    ///
    /// # Errors
    /// The next frame is too long.
    #[inline]
    pub(super) fn consume(&mut self, count: usize) -> io::Result<()> {
        self.filled -= count;
        if self.filled > 0 {
            self.buffer.copy_within(count..count + self.filled, 0);
        }
        if self.filled <= BUFFER && self.buffer.len() > BUFFER {
            self.shrink();
        }
        match payload(self.bytes()) {
            Some(payload) if payload > MAX_PAYLOAD => Err(too_long(payload)),
            _ => Ok(()),
        }
    }

    #[cold]
    fn shrink(&mut self) {
        self.buffer.truncate(BUFFER);
        self.buffer.shrink_to_fit();
        self.charge.shrink_to(BUFFER);
    }
}

/// The payload's size that the header at the start of `bytes` announces.
#[inline]
fn payload(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk::<HEADER>().map(|header| u32::from_be_bytes(*header) as usize)
}

#[cold]
fn too_long(payload: usize) -> io::Error {
    let text = format!("a frame of {payload} bytes was announced, {MAX_PAYLOAD} are allowed");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// # Errors
/// There is no memory, or nothing would be left. (An ordinary allocation would abort the process.)
fn enlarge(buffer: &mut Vec<u8>, size: usize) -> io::Result<()> {
    if size > buffer.capacity() {
        buffer.try_reserve_exact(size - buffer.len())?;
        if !is_some_left() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
    }
    buffer.resize(size.max(buffer.len()), 0);
    Ok(())
}

#[cold]
fn no_room() -> io::Error {
    let text =
        "the frames of all connections take all the memory that they may take: see max_memory";
    io::Error::new(io::ErrorKind::OutOfMemory, text)
}

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(bytes: &[u8]) -> Frames {
        Frames::behind(bytes.to_vec(), Charge::default(), Budget::new(usize::MAX)).unwrap()
    }

    #[test]
    fn only_whole_frames_are_complete() {
        assert_eq!(frames(b"").complete().unwrap(), 0);
        assert_eq!(frames(b"\0\0\0").complete().unwrap(), 0);
        assert_eq!(frames(b"\0\0\0\0").complete().unwrap(), 4);
        assert_eq!(frames(b"\0\0\0\x02a").complete().unwrap(), 0);
        assert_eq!(frames(b"\0\0\0\x02ab\0\0\0\x01c\0\0").complete().unwrap(), 11);
    }

    #[test]
    fn a_buffer_that_cannot_be_had_is_an_error() {
        let mut buffer = vec![1];
        let error = enlarge(&mut buffer, usize::MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(buffer, [1]);
        enlarge(&mut buffer, 2).unwrap();
        assert_eq!(buffer, [1, 0]);
    }

    #[test]
    fn a_frame_that_is_too_long_is_an_error_after_those_before_it_are_answered() {
        let mut some = frames(b"\0\0\0\x01a\x01\0\0\x01");
        assert_eq!(some.complete().unwrap(), 5);
        let errors = [some.consume(5), some.complete().map(|_| ())];
        for error in errors.map(Result::unwrap_err) {
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains("16777217"), "{error}");
        }
        assert_eq!(frames(b"\x01\0\0\0").complete().unwrap(), 0, "16 MiB is allowed");
    }

    #[test]
    fn what_moves_to_another_loop_is_neither_copied_nor_uncounted_on_its_way() {
        const LIMIT: usize = 4 * BUFFER;
        let budget = Budget::new(LIMIT);
        let rest = vec![1; 3 * BUFFER];
        let mut frames = Frames::behind(rest.clone(), Charge::default(), budget.clone()).unwrap();
        let at = frames.bytes().as_ptr();
        let (unread, charge) = frames.take();
        drop(frames);
        assert_eq!((unread.as_ptr(), budget.used()), (at, 3 * BUFFER));
        // Nobody else takes its room meanwhile.
        let other = Frames::behind(rest.clone(), Charge::default(), budget.clone());
        assert!(other.is_err());
        let frames = Frames::behind(unread, charge, budget.clone()).unwrap();
        assert_eq!((frames.bytes(), frames.bytes().as_ptr()), (&rest[..], at));
        assert_eq!(budget.used(), 3 * BUFFER);
        drop(frames);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn the_rest_moves_to_the_front_and_the_buffer_shrinks_again() {
        let mut frames = frames(b"\0\0\0\x01axy");
        frames.buffer.resize(4 * BUFFER, 0);
        frames.consume(5).unwrap();
        assert_eq!(frames.bytes(), b"xy");
        assert_eq!(frames.buffer.len(), BUFFER);
    }
}
