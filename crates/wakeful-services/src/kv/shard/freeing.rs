//! Frees the memory of removed entries. A large value is a mapping of its own, and the kernel takes
//! about 0.1 ms for each MiB that is unmapped. So one thread of the process frees what would block
//! a loop. (While it does, threads that map memory wait for it.)

use std::any::Any;
use std::mem::take;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use wakeful::process::start_thread;

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
    if keys <= MOST_KEYS && bytes <= MOST_BYTES || !give(Box::new(entries)) {
        return FreedBy::Loop;
    }
    FreedBy::Thread
}

/// What the thread is to drop.
type Entries = Box<dyn Any + Send>;

/// Gives them to the thread. `false`: there is none, and they were dropped.
fn give(entries: Entries) -> bool {
    static THREAD: Mutex<Option<Sender<Entries>>> = Mutex::new(None);
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if thread.is_none() {
        let (give, given) = channel::<Entries>();
        let free = move || given.into_iter().for_each(drop);
        *thread = start_thread("kv-free", free).ok().map(|_| give);
    }
    let thread = thread.clone();
    thread.is_some_and(|thread| thread.send(entries).is_ok())
}

/// The memory of large entries that were removed, and not freed yet.
#[derive(Debug, Default)]
pub(super) struct Removed {
    entries: Vec<Box<[u8]>>,
    bytes: usize,
}

impl Removed {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Without memory for a place, the entry is freed at once.
    #[inline]
    pub(super) fn add(&mut self, entry: Box<[u8]>) {
        if entry.len() >= LARGE && self.entries.try_reserve(1).is_ok() {
            self.bytes += entry.len();
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
