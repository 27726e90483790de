//! What has become of a log's lines, and what its thread is at.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) written: AtomicU64,
    pub(super) dropped: AtomicU64,
    /// Bytes that were handed over and are neither written nor dropped.
    pub(super) queued: AtomicUsize,
    /// The write of the thread that waits for room in a pipe, a socket or a terminal: each has
    /// another number, but 0 is none.
    pub(super) waiting: AtomicU64,
}

impl Counts {
    pub(super) fn drop_lines(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }
}
