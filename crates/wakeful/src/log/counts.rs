//! What has become of a log's lines, and what its thread is doing.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) written: AtomicU64,
    pub(super) dropped: AtomicU64,
    /// The number of bytes that were queued and are neither written nor dropped.
    pub(super) queued: AtomicUsize,
    /// The number of the write that waits for room in a pipe, a socket or a terminal. Each such
    /// write has another number; 0: none waits.
    pub(super) waiting: AtomicU64,
}

impl Counts {
    pub(super) fn drop_lines(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }
}
