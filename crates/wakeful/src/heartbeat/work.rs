//! What a poll works on, in the program's own words: a request, for the log of a worker that is
//! killed.
//!
//! The text is in the loop's line, in a fixed number of words, so that writing it costs a request
//! next to nothing. Only the loop writes it. A reader that reads it at the same time may see parts
//! of two texts.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::page::{LINE, WORK};
use crate::sys::sync::AtomicUsize;

const WORD: usize = size_of::<usize>();

/// The words of the text. The word before them is its length.
const WORDS: usize = LINE - WORK - 1;

const LONGEST: usize = WORDS * WORD;

/// A description for [`working_on`](super::working_on). It holds at most 88 bytes (44 on 32-bit
/// machines); further bytes are left out. The bytes may have any value, and may come from a client:
/// the reader escapes them.
#[derive(Debug)]
pub struct WorkText {
    bytes: [u8; LONGEST],
    length: usize,
}

impl WorkText {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { bytes: [0; LONGEST], length: 0 }
    }

    /// Adds `bytes`, as far as there is room.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(LONGEST - self.length)];
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

#[inline]
pub(super) fn write(words: &[AtomicUsize; LINE], text: &WorkText) {
    let (chunks, _) = text.bytes.as_chunks::<WORD>();
    let used = &chunks[..text.length.div_ceil(WORD)];
    for (word, bytes) in words[WORK + 1..].iter().zip(used) {
        word.store(usize::from_ne_bytes(*bytes), Relaxed);
    }
    words[WORK].store(text.length, Release);
}

#[inline]
pub(super) fn clear(words: &[AtomicUsize; LINE]) {
    words[WORK].store(0, Relaxed);
}

/// Whatever the memory contains, the result is one line that may be logged. Bytes that are not
/// graphic ASCII are percent-encoded, because clients may have chosen them.
pub(super) fn read(words: &[AtomicUsize]) -> Option<String> {
    let (length, text) = words.split_first()?;
    let length = length.load(Acquire).min(LONGEST);
    let bytes = text.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).take(length);
    let shown = bytes.map(|byte| match byte {
        b' ' | b'!'..=b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    Some(shown.collect()).filter(|text: &String| !text.is_empty())
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use std::array;

    use super::*;

    fn line() -> [AtomicUsize; LINE] {
        array::from_fn(|_| AtomicUsize::new(0))
    }

    fn text(parts: &[&[u8]]) -> WorkText {
        let mut text = WorkText::new();
        parts.iter().for_each(|part| text.add(part));
        text
    }

    fn shown(parts: &[&[u8]]) -> Option<String> {
        let words = line();
        // The previous text must not show.
        write(&words, &text(&[&[b'x'; LONGEST]]));
        write(&words, &text(parts));
        read(&words[WORK..])
    }

    #[test]
    fn a_text_is_read_as_it_was_written_until_it_is_cleared() {
        assert_eq!(shown(&[b"GET", b" ", b"/reports/7"]).as_deref(), Some("GET /reports/7"));
        let words = line();
        assert_eq!(read(&words[WORK..]), None);
        write(&words, &text(&[b"GET /"]));
        clear(&words);
        assert_eq!(read(&words[WORK..]), None);
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let (start, rest) = ([b'a'; LONGEST - 1], [b'b'; LONGEST]);
        let expected = format!("{}b", "a".repeat(LONGEST - 1));
        assert_eq!(shown(&[&start, &rest, &rest]), Some(expected));
    }

    #[test]
    fn what_a_terminal_may_interpret_and_damage_are_a_line_all_the_same() {
        let hostile = "/\u{202e}\u{1b}[31m\n";
        assert_eq!(shown(&[hostile.as_bytes()]).as_deref(), Some("/%E2%80%AE%1B[31m%0A"));
        let words = line();
        words.iter().for_each(|word| word.store(usize::MAX, Relaxed));
        assert_eq!(read(&words[WORK..]), Some("%FF".repeat(LONGEST)));
    }
}
