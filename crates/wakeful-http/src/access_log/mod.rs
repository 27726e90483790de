//! The access log: a line for each request, written by a separate thread.
//!
//! Each loop formats lines into its own buffer. It passes the buffer to a [`LossyWriter`] 100 ms
//! after the first line, at 64 KiB, and at the loop's end. While it serves, a loop never waits for
//! the writer. If the writer's queue is full, because a disk or a pipe is slow, the buffer is
//! dropped and its lines are counted.

// `format` has the format of a line. `destination` opens and reopens the file. `observe` sees the
// requests. `buffer` is the buffer of one loop.

mod buffer;
mod destination;
mod format;
mod settings;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wakeful::log::{LossyWriter, Queue};

pub(crate) use buffer::LoopLog;
pub(crate) use format::Line;
pub use settings::{Destination, Format, Query};

use destination::Sink;

/// The limits of all buffers together that are on their way to the writer.
const QUEUE: Queue = Queue { writes: 256, bytes: 32 << 20 };

/// An access log, for [`Observe::access_log`](crate::observe::Observe::access_log).
///
/// ```no_run
/// use wakeful_http::Server;
/// use wakeful_http::access_log::{AccessLog, Destination, Format, Query};
/// use wakeful_http::observe::Observe;
/// # use axum::Router;
///
/// # fn main() -> std::io::Result<()> {
/// # let app = Router::<()>::new();
/// let file = Destination::File("/var/log/app/access.log".into());
/// let log = AccessLog::new(Format::Json, file, Query::Omit)?;
/// Server::bind("127.0.0.1:8080")?.observe(Observe::new().access_log(log)).serve(app)
/// # }
/// ```
///
/// The log counts the bytes of a response's body that the connection has taken from the service. It
/// does not know whether bytes that are still in hyper's or the kernel's buffers reach the client.
/// A body that consists of one piece counts as complete as soon as the connection has taken it.
///
/// If a write fails in the middle, because the disk is full or a limit is reached, one line is
/// damaged. Only its first part is in the file, and the log ends that part with a line feed. The
/// lines before it count as [written](Self::written). If the process ends before that line feed,
/// the next process writes it, provided that it may read the file.
///
/// If the size of the process's files is limited (`RLIMIT_FSIZE`), catch SIGXFSZ. Otherwise the
/// kernel ends the process when the limit is reached. (`wakeful serve` catches the signal.)
///
/// A FIFO is opened for reading and writing, so opening it does not wait for a reader.
///
/// If hyper refuses a request itself, for example because of a malformed header, there is no line.
/// Text from the client is cut at 4 KiB for each field. After lines were dropped, the log gets a
/// line with their number (`{"dropped":n}`, or `# n lines dropped`) as soon as it can be written
/// again. A `tracing` event then reports them, at most once a second: the rest comes with a later
/// line, or with the next [`flush`](Self::flush) or the end.
///
/// # Threads
/// `Send` and `Sync`. Clones refer to the same log. The writer's thread ends when the last clone is
/// dropped and the last loop that writes to the log has ended.
#[derive(Clone)]
pub struct AccessLog {
    inner: Arc<Inner>,
}

struct Inner {
    format: Format,
    query: Query,
    is_file: bool,
    writer: LossyWriter,
    reopen: Arc<AtomicBool>,
}

impl AccessLog {
    /// Opens the destination and starts the writer's thread.
    ///
    /// # Errors
    /// The file cannot be opened for appending, or no thread can be started.
    pub fn new(format: Format, destination: Destination, query: Query) -> io::Result<Self> {
        let is_file = matches!(destination, Destination::File(_));
        let reopen = Arc::<AtomicBool>::default();
        let sink = Sink::open(format, destination, reopen.clone())?;
        let writer = LossyWriter::on_thread("access-log", sink, QUEUE)?;
        Ok(Self { inner: Arc::new(Inner { format, query, is_file, writer, reopen }) })
    }

    /// Reopens the file by its name, before the next lines are written. Call it in a log rotation,
    /// after the rename. If the file cannot be reopened, the old one is kept, a `tracing` event
    /// says why, and each write tries again. It has no effect for stdout and stderr.
    pub fn reopen(&self) {
        self.inner.reopen.store(true, Ordering::Release);
        self.inner.writer.wake();
    }

    /// Returns whether the log is written to a file, so that [`reopen`](Self::reopen) has an
    /// effect.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.inner.is_file
    }

    /// Waits until the lines that loops have passed to the writer are written, for at most
    /// `timeout`. Returns whether they are written. If the destination is a pipe that nobody reads,
    /// gives up after a quarter of `timeout`. Blocks the calling thread.
    ///
    /// Each loop passes on its lines when it ends, and waits for up to a second in the same way. So
    /// this call is not needed after a [`shutdown`](crate::Running::shutdown).
    #[must_use]
    pub fn flush(&self, timeout: Duration) -> bool {
        self.inner.writer.flush_within(timeout)
    }

    /// Returns how many lines were dropped so far, because the destination was slow or failed.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.inner.writer.dropped()
    }

    /// Returns how many whole lines were written so far, including those of a write that failed in
    /// the middle.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.inner.writer.written()
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { format, query, .. } = &*self.inner;
        f.debug_struct("AccessLog")
            .field("format", format)
            .field("query", query)
            .finish_non_exhaustive()
    }
}
