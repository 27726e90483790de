//! Memory in which each place has the last text of its worker.
//!
//! It is a file in memory, which is read and written by system calls. It is not mapped, so nothing
//! that another process does to it can cause a fault here. A place has room for two texts, and a
//! number that says which of them is complete. If a worker is killed while it writes, the other
//! text stays.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::{Errno, pread, pwrite};

use super::roster::MOST_PLACES;
use crate::memory_file;

/// The most that one text can be.
pub(super) const LONGEST: usize = 64 << 20;

/// The size of the header of a text: its number, its length, and the process that wrote it.
const HEADER: usize = 24;

/// The number of a place, and the size of one of its texts with its header, unless the text is
/// long. The rest of the page is not used.
const NUMBER: u64 = 4096;
const SHORT: u64 = 1 << 20;
const PLACE: u64 = NUMBER + 2 * SHORT;

/// Where the long texts begin, behind all places, of which the list of workers is one.
const LONG: u64 = (MOST_PLACES as u64 + 1) * PLACE;

/// How often a reader tries again after a writer has overtaken it.
const TRIES: usize = 8;

#[derive(Debug, Clone)]
pub(super) struct Page(Arc<OwnedFd>);

/// The text in a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    /// The number of the text. It starts at 1, and rises with each text.
    pub(super) number: u64,
    /// The process that wrote it.
    pub(super) pid: u32,
    pub(super) text: Vec<u8>,
}

impl Page {
    /// Makes a page with empty places, which take no memory.
    ///
    /// # Errors
    /// No memory; no descriptors left.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(memory_file::create("wakeful-reports")?)))
    }

    /// Uses the memory that another process made.
    pub(super) fn of(file: OwnedFd) -> Self {
        Self(Arc::new(file))
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Writes a text into a place. Only one thread may write to a place at a time.
    ///
    /// # Errors
    /// The text is too long; no memory; a limit of file sizes.
    pub(super) fn write(&self, place: usize, pid: u32, text: &[u8]) -> io::Result<()> {
        if text.len() > LONGEST {
            let what = format!("a report of {} bytes: at most {LONGEST} are taken", text.len());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        let number = self.number(place)?.wrapping_add(1);
        let at = text_at(place, number, text.len());
        memory_file::may_be_as_large("a report", at + text.len() as u64)?;
        let header = [number, text.len() as u64, pid.into()].map(u64::to_ne_bytes);
        self.write_all(text, at)?;
        self.write_all(header.as_flattened(), header_at(place, number))?;
        self.write_all(&number.to_ne_bytes(), place_at(place))
    }

    /// How many texts have come to a place.
    ///
    /// # Errors
    /// Kernel errors, which are not expected.
    pub(super) fn number(&self, place: usize) -> io::Result<u64> {
        let mut number = [0; 8];
        self.read_all(&mut number, place_at(place))?;
        Ok(u64::from_ne_bytes(number))
    }

    /// The last whole text of a place. `None`: none has come.
    ///
    /// # Errors
    /// No memory; or the text is written faster than it can be read.
    pub(super) fn read(&self, place: usize) -> io::Result<Option<Written>> {
        for _ in 0..TRIES {
            let number = self.number(place)?;
            if number == 0 {
                return Ok(None);
            }
            let mut header = [0; HEADER];
            self.read_all(&mut header, header_at(place, number))?;
            let [written, length, pid] = words(&header);
            let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST);
            let Some(length) = length.filter(|_| written == number) else { continue };
            let mut text = vec![0; length];
            self.read_all(&mut text, text_at(place, number, length))?;
            // Only the text after the next one overwrites this one, so this check detects a writer
            // that has overtaken the reader.
            if self.number(place)? == number {
                let pid = u32::try_from(pid).unwrap_or(0);
                return Ok(Some(Written { number, pid, text }));
            }
        }
        Err(io::Error::other("a report is written faster than it can be read"))
    }

    /// Memory that was never written reads as zeros.
    fn read_all(&self, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match pread(&self.0, &mut *bytes, at) {
                Ok(0) => {
                    bytes.fill(0);
                    return Ok(());
                }
                Ok(read) => {
                    bytes = &mut bytes[read..];
                    at += read as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write_all(&self, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match pwrite(&self.0, bytes, at) {
                Ok(written) => {
                    bytes = &bytes[written..];
                    at += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn place_at(place: usize) -> u64 {
    place as u64 * PLACE
}

fn header_at(place: usize, number: u64) -> u64 {
    place_at(place) + NUMBER + number % 2 * SHORT
}

fn text_at(place: usize, number: u64, length: usize) -> u64 {
    if (HEADER + length) as u64 <= SHORT {
        header_at(place, number) + HEADER as u64
    } else {
        LONG + (2 * place as u64 + number % 2) * LONGEST as u64
    }
}

fn words(header: &[u8; HEADER]) -> [u64; 3] {
    let (words, _) = header.as_chunks();
    [words[0], words[1], words[2]].map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_place_has_its_last_text() {
        let page = Page::new().unwrap();
        assert_eq!(page.read(3).unwrap(), None);
        for (number, text) in [(1, "first"), (2, "a second one"), (3, "")] {
            page.write(3, 7, text.as_bytes()).unwrap();
            let expected = Written { number, pid: 7, text: text.into() };
            assert_eq!(page.read(3).unwrap(), Some(expected));
        }
        assert_eq!(page.read(2).unwrap(), None);
        assert_eq!(page.read(4).unwrap(), None);
    }

    #[test]
    fn a_writer_that_dies_leaves_the_text_from_before() {
        let page = Page::new().unwrap();
        page.write(0, 7, b"whole").unwrap();
        // This is a text that was interrupted: everything but the place's number has been written.
        page.write_all(b"torn", text_at(0, 2, 4)).unwrap();
        page.write_all(&2_u64.to_ne_bytes(), header_at(0, 2)).unwrap();
        assert_eq!(page.read(0).unwrap().unwrap().text, b"whole");
    }

    #[test]
    fn texts_of_any_length_are_read_as_they_were_written() {
        let page = Page::new().unwrap();
        let short = SHORT as usize - HEADER;
        for length in [0, short, short + 1, 1, 2 * short, 3 * short, short - 1] {
            for (place, byte) in [(1, b'a'), (2, b'b'), (0, b'c'), (MOST_PLACES, b'd')] {
                page.write(place, 7, &vec![byte; length]).unwrap();
            }
            for (place, byte) in [(1, b'a'), (2, b'b'), (0, b'c'), (MOST_PLACES, b'd')] {
                let text = page.read(place).unwrap().unwrap().text;
                assert!(text.len() == length && text.iter().all(|one| *one == byte), "{place}");
            }
        }
    }

    #[test]
    fn a_text_that_is_too_long_leaves_the_one_from_before() {
        let page = Page::new().unwrap();
        page.write(0, 7, &vec![b'a'; LONGEST]).unwrap();
        let error = page.write(0, 7, &vec![b'b'; LONGEST + 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        let kept = page.read(0).unwrap().unwrap();
        assert!(kept.text.len() == LONGEST && kept.text.iter().all(|byte| *byte == b'a'));
    }

    #[test]
    fn a_reader_never_sees_parts_of_two_texts() {
        let page = Page::new().unwrap();
        page.write(0, 7, &[0; 10_000]).unwrap();
        let writer = thread::spawn({
            let page = page.clone();
            move || (1..=200_u8).for_each(|byte| page.write(0, 7, &[byte; 10_000]).unwrap())
        });
        while !writer.is_finished() {
            if let Ok(Some(written)) = page.read(0) {
                assert!(written.text.iter().all(|byte| *byte == written.text[0]));
                assert_eq!(written.number, u64::from(written.text[0]) + 1);
            }
        }
        writer.join().unwrap();
        assert_eq!(page.read(0).unwrap().unwrap().text[0], 200);
    }

    #[test]
    fn nonsense_in_the_memory_is_an_error_and_no_fault() {
        let page = Page::new().unwrap();
        page.write(0, 7, b"text").unwrap();
        page.write_all(&[0xff; HEADER], header_at(0, 1)).unwrap();
        assert!(page.read(0).is_err());
    }
}
