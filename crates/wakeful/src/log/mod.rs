//! Logging that cannot block a loop.
//!
//! # Why it matters
//! wakeful logs through [`tracing`]. A subscriber runs on the thread that logs, which is often the
//! thread of a loop. If it writes to standard error and standard error is a full pipe, it blocks
//! the loop. `eprintln!` and the default panic hook block, too. On a full disk or a closed pipe
//! `eprintln!` panics. Requests then time out or are lost because of a log line.
//!
//! # What to do
//! * Write through a [`LossyWriter`]. It hands each line to a separate thread and never waits.
//!   Lines that the destination does not take in time are dropped, [counted](LossyWriter::dropped),
//!   and reported once lines can be written.
//! * Report panics the same way, with [`report_panics`].
//! * Keep a guard of [`LossyWriter::flush_on_drop`] in `main`. Without it the last lines are lost,
//!   including those of a panic in `main`.
//! * Limit lines that a peer can cause to one per second, with [`OncePerSecond`].
//!
//! ```
//! use std::io::{self, IsTerminal};
//! use std::time::Duration;
//! use tracing_subscriber::EnvFilter;
//! use wakeful::log::{LossyWriter, report_panics};
//!
//! let log = LossyWriter::new(io::stderr());
//! report_panics(&log);
//! let _flush = log.flush_on_drop(Duration::from_secs(1)); // At the end of `main`.
//! // A single client can cause the warnings of h2.
//! let default = |_| EnvFilter::new("info,h2=error");
//! let filter = EnvFilter::try_from_default_env().unwrap_or_else(default);
//! tracing_subscriber::fmt() // tracing-subscriber = { version = "0.3", features = ["env-filter"] }
//!     .with_env_filter(filter)
//!     .with_writer(move || log.clone())
//!     .with_ansi(io::stderr().is_terminal())
//!     .log_internal_errors(false) // They would be printed by `eprintln!`.
//!     .init();
//!
//! wakeful::block_on(async {
//!     tracing::info!("this line is written by another thread");
//! });
//! ```
//!
//! If you write a subscriber, it must not block and should not panic: it may run on a loop, in any
//! task, at any time.

mod background;
mod counts;
mod lossy_writer;
mod output;
mod panic_hook;
mod patience;

use std::io;
use std::os::fd::BorrowedFd;

pub use lossy_writer::{FlushOnDrop, LossyWriter, Queue};
pub use panic_hook::report_panics;

pub use crate::sys::once_per_second::OncePerSecond;
use crate::sys::panics;

/// Runs `log`, which logs through [`tracing`], and contains a panic in the subscriber: the loop of
/// this thread counts it.
#[doc(hidden)]
pub fn contained(log: impl FnOnce()) {
    panics::contain(log);
}

/// The destination of a [`LossyWriter`].
///
/// All methods are called on the writer's thread, where they may block. (`fd` is also called once
/// by [`LossyWriter::on_thread`].)
pub trait Destination: Send + 'static {
    /// Returns the descriptor to write to. It may be in non-blocking mode.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Opens the destination again if necessary, for example after a log rotation. Called before
    /// each write, after [`LossyWriter::wake`], and from time to time while a descriptor in
    /// non-blocking mode has no room.
    ///
    /// Returns whether lines now go to another file. A line that was written to the old file in
    /// part then starts again.
    fn reopen(&mut self) -> bool {
        false
    }

    /// Returns the text that replaces `lines` dropped lines. It ends with a line feed.
    fn note(&self, lines: u64) -> Vec<u8> {
        format!("wakeful: {lines} log lines were dropped: the log was full or failed\n")
            .into_bytes()
    }

    /// Called after a note was written, with the number that it had.
    #[doc(hidden)]
    fn noted(&self, _lines: u64) {}

    /// Called for each flush, when all lines before it were written or dropped.
    #[doc(hidden)]
    fn flushed(&self) {}

    /// Called when a write fails. If several writes in a row fail, it is called only for the first
    /// of them.
    fn failed(&self, _error: &io::Error) {}
}
