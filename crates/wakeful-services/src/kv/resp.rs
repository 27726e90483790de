//! Commands as they come over a connection: RESP arrays of bulk strings, and lines of words
//! ("inline commands").
//!
//! Whenever more bytes have come, the parser gets all bytes from the beginning of the command, and
//! continues where it stopped, so that it looks at no argument twice. It copies nothing: arguments
//! are ranges of those bytes. Announced lengths are checked against the limits, and never allocated
//! in advance.

use std::fmt;
use std::ops::Range;

/// The most words that a command has. Redis has the same limit.
const MAX_WORDS: usize = 1024 * 1024;
/// The longest inline command, in bytes.
const MAX_LINE: usize = 64 * 1024;
/// The most digits of a length.
const MAX_DIGITS: usize = 10;
/// The capacity for words that is kept from one command to the next.
const KEPT_WORDS: usize = 1024;

pub(super) const NO_MEMORY_FOR_WORDS: &str = "no memory left for so many words";

/// What is refused, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// A word longer than this.
    pub(super) word: usize,
    /// A command that is longer in all.
    pub(super) command: usize,
}

/// Why nothing more is read from a connection. The text is Redis's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProtocolError {
    text: String,
    is_too_long: bool,
}

impl ProtocolError {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { text: what.into(), is_too_long: false }
    }

    /// Is it a command beyond [`Limits::command`]?
    pub(super) fn is_too_long(&self) -> bool {
        self.is_too_long
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Protocol error: {}", self.text)
    }
}

/// The words of a command: its name and its arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a> {
    bytes: &'a [u8],
    places: &'a [Range<u32>],
}

impl<'a> Words<'a> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<&'a [u8]> {
        let place = self.places.get(number)?;
        Some(&self.bytes[place.start as usize..place.end as usize])
    }

    /// The words after the first `count`.
    #[inline]
    pub(super) fn skip(self, count: usize) -> Self {
        Self { places: &self.places[count.min(self.places.len())..], ..self }
    }

    #[inline]
    pub(super) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.bytes;
        self.places.iter().map(move |place| &bytes[place.start as usize..place.end as usize])
    }

    /// The words in pairs. A last single one is left out.
    pub(super) fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
        let bytes = self.bytes;
        let word = move |place: &Range<u32>| &bytes[place.start as usize..place.end as usize];
        self.places.chunks_exact(2).map(move |pair| (word(&pair[0]), word(&pair[1])))
    }
}

/// Reads one command after another.
#[derive(Debug)]
pub(super) struct Parser {
    limits: Limits,
    words: Vec<Range<u32>>,
    /// The number of words that were announced and have not come. 0: between commands.
    missing: usize,
    /// The position up to which the command was parsed.
    at: usize,
}

impl Parser {
    pub(super) fn new(limits: Limits) -> Self {
        // A range has 32-bit numbers.
        let most = limits.command.min(u32::MAX as usize / 2);
        let limits = Limits { word: limits.word.min(most), command: most.max(1) };
        Self { limits, words: Vec::new(), missing: 0, at: 0 }
    }

    /// Continues to parse the command at the beginning of `bytes`. Returns its length when it is
    /// complete. Then [`words`](Self::words) returns its words, and the bytes of the next call must
    /// begin after it. A command may have no words.
    ///
    /// # Errors
    /// This is no command, or it is beyond the limits. Nothing after it can be understood.
    #[inline]
    pub(super) fn parse(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let most = self.limits.command;
        // What is beyond is not looked at, so that it does not matter how much has come.
        let bytes = &bytes[..bytes.len().min(most)];
        let length = self.parse_within(bytes)?;
        if length.is_none() && bytes.len() == most {
            return Err(self.too_long());
        }
        Ok(length)
    }

    /// `bytes` are all that a command may have.
    #[inline]
    fn parse_within(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if self.missing == 0 {
            match bytes.first() {
                None => return Ok(None),
                Some(b'*') => {
                    self.words.clear();
                    let error = "invalid multibulk length";
                    let Some((words, next)) = length(bytes, 1, error)? else {
                        return Ok(None);
                    };
                    if words > MAX_WORDS as i64 {
                        return Err(ProtocolError::new(error));
                    }
                    self.at = next;
                    // A negative number counts as 0, as in Redis.
                    self.missing = usize::try_from(words).unwrap_or(0);
                }
                Some(_) => return self.inline(bytes),
            }
        }
        while self.missing > 0 {
            let Some(end) = self.bulk(bytes)? else {
                return Ok(None);
            };
            self.at = end;
            self.missing -= 1;
        }
        Ok(Some(std::mem::take(&mut self.at)))
    }

    /// Parses one word. Returns where the rest begins.
    #[inline]
    fn bulk(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(&first) = bytes.get(self.at) else {
            return Ok(None);
        };
        if first != b'$' {
            let what = format!("expected '$', got '{}'", first.escape_ascii());
            return Err(ProtocolError::new(what));
        }
        let error = "invalid bulk length";
        let Some((length, start)) = length(bytes, self.at + 1, error)? else {
            return Ok(None);
        };
        let length = usize::try_from(length).ok().filter(|length| *length <= self.limits.word);
        let length = length.ok_or_else(|| ProtocolError::new(error))?;
        let end = start + length;
        if end + 2 > self.limits.command {
            return Err(self.too_long());
        }
        let Some(line_end) = bytes.get(end..end + 2) else {
            return Ok(None);
        };
        if line_end != b"\r\n" {
            return Err(ProtocolError::new("a bulk string does not end where its length says"));
        }
        self.note(start as u32..end as u32)?;
        Ok(Some(end + 2))
    }

    /// # Errors
    /// There is no memory for it.
    #[inline]
    fn note(&mut self, word: Range<u32>) -> Result<(), ProtocolError> {
        let room = self.words.try_reserve(1);
        room.map_err(|_| ProtocolError::new(NO_MEMORY_FOR_WORDS))?;
        self.words.push(word);
        Ok(())
    }

    #[cold]
    fn too_long(&self) -> ProtocolError {
        let text = format!("a command may have {} bytes", self.limits.command);
        ProtocolError { text, is_too_long: true }
    }

    /// Words between blanks, up to the line's end.
    fn inline(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(end) = bytes[self.at..].iter().position(|byte| *byte == b'\n') else {
            if bytes.len() > MAX_LINE {
                return Err(ProtocolError::new("too big inline request"));
            }
            // The next call searches only the new bytes.
            self.at = bytes.len();
            return Ok(None);
        };
        let end = std::mem::take(&mut self.at) + end;
        if end > MAX_LINE {
            return Err(ProtocolError::new("too big inline request"));
        }
        self.words.clear();
        let mut start = 0;
        for word in bytes[..end].split(u8::is_ascii_whitespace) {
            if word.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
                // Redis interprets quotes. To store them as they are would be a silent difference.
                return Err(ProtocolError::new("no quotes in inline requests: send an array"));
            }
            if word.len() > self.limits.word {
                return Err(ProtocolError::new("too big inline request"));
            }
            if !word.is_empty() {
                self.note(start as u32..(start + word.len()) as u32)?;
            }
            start += word.len() + 1;
        }
        Ok(Some(end + 1))
    }

    /// The words of the last complete command. `bytes` must be the same as in that call.
    #[inline]
    pub(super) fn words<'a>(&'a self, bytes: &'a [u8]) -> Words<'a> {
        Words { bytes, places: &self.words }
    }

    /// How many bytes are allocated for words beyond what most commands need.
    #[inline]
    pub(super) fn held(&self) -> usize {
        let words = self.words.capacity();
        if words > KEPT_WORDS { words * size_of::<Range<u32>>() } else { 0 }
    }

    /// Frees the memory of a command with many words.
    pub(super) fn shrink(&mut self) {
        if self.missing == 0 && self.words.capacity() > KEPT_WORDS {
            self.words.clear();
            self.words.shrink_to(KEPT_WORDS);
        }
    }
}

/// The number in the line that begins at `start`, and where the next line begins. `None`: the line
/// is incomplete.
#[inline]
fn length(bytes: &[u8], start: usize, error: &str) -> Result<Option<(i64, usize)>, ProtocolError> {
    let invalid = || ProtocolError::new(error);
    let (mut number, mut digits) = (0_i64, 0);
    let negative = bytes.get(start) == Some(&b'-');
    let mut at = start + usize::from(negative);
    loop {
        match bytes.get(at) {
            None => return Ok(None),
            Some(digit @ b'0'..=b'9') if digits < MAX_DIGITS => {
                number = number * 10 + i64::from(digit - b'0');
                digits += 1;
            }
            Some(b'\r') if digits > 0 => break,
            Some(_) => return Err(invalid()),
        }
        at += 1;
    }
    match bytes.get(at + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((if negative { -number } else { number }, at + 2))),
        Some(_) => Err(invalid()),
    }
}

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
#[cfg(test)]
mod tests;
