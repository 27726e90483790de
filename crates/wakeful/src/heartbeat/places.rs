//! The places in the source where a worker's tasks were spawned, as text that another process can
//! read.
//!
//! A loop reports the task that it runs by a number: the address of the task's place in the worker.
//! That is as cheap as possible, but means nothing to another process. So when a loop first runs a
//! task from a place, the worker writes the number and the text of the place into a table of the
//! page. All loops of the worker add to the table. Nobody removes an entry.
//!
//! An entry is claimed, written, and then published by its number. A worker that is killed in
//! between leaves a claimed entry, which is lost until the page is cleared. If the table is full,
//! or damaged, a place is not known.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::metrics::name_of;
use crate::sys::sync::AtomicUsize;

/// More places than a server has that spawn on its loops.
const ENTRIES: usize = 128;

/// An entry in words: its number, the length of its text, and the text.
const ENTRY: usize = 16;
const NUMBER: usize = 0;
const LENGTH: usize = 1;
const TEXT: usize = 2;

const WORD: usize = size_of::<usize>();
const LONGEST: usize = (ENTRY - TEXT) * WORD;

pub(super) const WORDS: usize = ENTRIES * ENTRY;

/// The number of a free entry, and of one that is being written.
const FREE: usize = 0;
const CLAIMED: usize = 1;

/// The number by which a loop reports this place.
#[inline]
pub(super) fn number(place: &'static Location<'static>) -> usize {
    ptr::from_ref(place).addr()
}

/// Where the search for the entry of this number begins. Places lie 24 bytes apart.
pub(super) const fn hash(number: usize) -> usize {
    (number / WORD).wrapping_mul(0x9e37_79b1) >> 7
}

/// Writes a place into the table, if it is not there and the table has room.
#[cold]
pub(super) fn add(table: &[AtomicUsize], place: &'static Location<'static>) {
    let wanted = number(place);
    for entry in entries_of(table, wanted) {
        match entry[NUMBER].compare_exchange(FREE, CLAIMED, Acquire, Acquire) {
            Ok(_) => {
                write(entry, &shown(place));
                entry[NUMBER].store(wanted, Release);
                return;
            }
            Err(there) if there == wanted => return,
            Err(_) => {}
        }
    }
}

/// The text of the entry with this number.
pub(super) fn text(table: &[AtomicUsize], number: usize) -> Option<String> {
    if number == FREE || number == CLAIMED {
        return None;
    }
    let mut entries = entries_of(table, number);
    entries.find(|entry| entry[NUMBER].load(Acquire) == number).map(read)
}

/// All entries, in the order in which the entry of this number is searched.
fn entries_of(table: &[AtomicUsize], number: usize) -> impl Iterator<Item = &[AtomicUsize]> {
    let first = hash(number) % ENTRIES;
    let (before, from) = table.split_at(first * ENTRY);
    from.chunks_exact(ENTRY).chain(before.chunks_exact(ENTRY))
}

fn write(entry: &[AtomicUsize], text: &str) {
    for (word, bytes) in entry[TEXT..].iter().zip(text.as_bytes().chunks(WORD)) {
        let mut whole = [0; WORD];
        whole[..bytes.len()].copy_from_slice(bytes);
        word.store(usize::from_ne_bytes(whole), Relaxed);
    }
    entry[LENGTH].store(text.len(), Relaxed);
}

/// The text of an entry. Whatever the memory contains, the result is one line that may be logged.
fn read(entry: &[AtomicUsize]) -> String {
    let length = entry[LENGTH].load(Relaxed).min(LONGEST);
    let bytes: Vec<u8> = entry[TEXT..]
        .iter()
        .flat_map(|word| word.load(Relaxed).to_ne_bytes())
        .take(length)
        .collect();
    let is_odd = |c: char| c.is_control();
    String::from_utf8_lossy(&bytes).replace(is_odd, "?")
}

/// The place as `src/file.rs:12`, or `src/file.rs:12 (name)`. If that is too long, its end.
fn shown(place: &'static Location<'static>) -> String {
    let mut text = format!("{}:{}", place.file(), place.line());
    if let Some(name) = name_of(place) {
        text = format!("{text} ({name})");
    }
    const CUT: &str = "...";
    if text.len() > LONGEST {
        let least = text.len() - (LONGEST - CUT.len());
        let start = (least..).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        text.replace_range(..start, CUT);
    }
    text
}

#[cfg(all(test, not(wakeful_loom)))]
mod tests {
    use super::*;
    use crate::metrics::named;

    fn table() -> Vec<AtomicUsize> {
        (0..WORDS).map(|_| AtomicUsize::new(0)).collect()
    }

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }

    /// `wanted` different places with the same line.
    fn places(wanted: usize) -> impl Iterator<Item = &'static Location<'static>> {
        (0..wanted).map(|number| named(Box::leak(format!("task {number}").into()), here()))
    }

    #[test]
    fn a_place_is_told_by_its_file_and_line_and_name() {
        let (table, plain) = (table(), here());
        let named = named("reader", plain);
        assert_eq!(text(&table, number(plain)), None);
        for _ in 0..3 {
            add(&table, plain);
            add(&table, named);
        }
        let line = format!("{}:{}", file!(), plain.line());
        assert_eq!(text(&table, number(plain)), Some(line.clone()));
        assert_eq!(text(&table, number(named)), Some(format!("{line} (reader)")));
        let used = table.iter().step_by(ENTRY).filter(|entry| entry.load(Relaxed) != FREE);
        assert_eq!(used.count(), 2);
    }

    #[test]
    fn of_what_is_too_long_the_end_is_told() {
        let name: &'static str = Box::leak("ä".repeat(LONGEST).into());
        let (table, place) = (table(), named(name, here()));
        add(&table, place);
        let told = text(&table, number(place)).unwrap();
        assert!(
            told.len() <= LONGEST && told.starts_with("...ä") && told.ends_with("ää)"),
            "{told}"
        );
    }

    #[test]
    fn a_full_table_keeps_what_it_has() {
        let table = table();
        let places: Vec<_> = places(ENTRIES + 10).collect();
        places.iter().for_each(|place| add(&table, place));
        let known = |place: &&&'static Location<'static>| text(&table, number(place)).is_some();
        assert_eq!(places.iter().filter(known).count(), ENTRIES);
        assert!(places.iter().take(ENTRIES).all(|place| known(&place)));
    }

    #[test]
    fn an_entry_that_was_claimed_and_never_written_is_passed_over() {
        let (table, place) = (table(), here());
        let first = hash(number(place)) % ENTRIES;
        table[first * ENTRY].store(CLAIMED, Relaxed);
        add(&table, place);
        assert!(text(&table, number(place)).is_some());
        assert_eq!((text(&table, FREE), text(&table, CLAIMED)), (None, None));
    }

    #[test]
    fn a_damaged_entry_is_still_a_line() {
        let (table, place) = (table(), here());
        add(&table, place);
        let first = hash(number(place)) % ENTRIES;
        for word in &table[first * ENTRY + LENGTH..(first + 1) * ENTRY] {
            word.store(usize::from_ne_bytes([b'\n'; WORD]) | 0xff, Relaxed);
        }
        let told = text(&table, number(place)).unwrap();
        assert!(!told.contains('\n') && told.contains('?'), "{told}");
    }

    #[test]
    fn threads_that_add_the_same_places_at_once_all_find_them() {
        let table = table();
        let places: Vec<_> = places(40).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for place in &places {
                        add(&table, place);
                        assert!(text(&table, number(place)).is_some_and(|it| it.contains("task")));
                    }
                });
            }
        });
    }
}
