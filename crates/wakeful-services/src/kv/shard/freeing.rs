//! Frees the memory of removed entries. A large value is a mapping of its own, and the kernel takes
//! about 0.1 ms for each MiB that is unmapped. So a thread frees what would block the loop.

use std::mem::take;
use std::thread;

use super::entry::Entry;

/// The most that a loop frees itself.
pub(super) const MOST_KEYS: usize = 10_000;
pub(super) const MOST_BYTES: usize = 4 << 20;

/// A smaller entry takes next to no time.
const LARGE: usize = 1 << 10;

/// How many places for removed entries are kept.
const KEPT: usize = 128;

/// Who frees the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kv) enum FreedBy {
    Loop,
    Thread,
}

/// Drops `entries`, which have this many keys and bytes. The loop does so if it takes little time,
/// or if no thread can be started.
pub(super) fn free(entries: impl Send + 'static, keys: usize, bytes: usize) -> FreedBy {
    if keys <= MOST_KEYS && bytes <= MOST_BYTES {
        return FreedBy::Loop;
    }
    let thread = thread::Builder::new().name("kv-free".to_owned());
    match thread.spawn(move || drop(entries)) {
        Ok(_) => FreedBy::Thread,
        Err(_) => FreedBy::Loop,
    }
}

/// The large entries that were removed and not freed yet.
#[derive(Debug, Default)]
pub(super) struct Removed {
    entries: Vec<Entry>,
    bytes: usize,
}

impl Removed {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Without memory for a place, the entry is freed at once.
    pub(super) fn add(&mut self, entry: Entry) {
        if entry.size() >= LARGE && self.entries.try_reserve(1).is_ok() {
            self.bytes += entry.size();
            self.entries.push(entry);
        }
    }

    #[cold]
    pub(super) fn free(&mut self) -> FreedBy {
        let bytes = take(&mut self.bytes);
        if bytes > MOST_BYTES {
            return free(take(&mut self.entries), 0, bytes);
        }
        self.entries.clear();
        self.entries.shrink_to(KEPT);
        FreedBy::Loop
    }
}
