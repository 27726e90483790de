//! Reading and writing a file by operations on the pool, one at a time and in order.
//!
//! A cancelled operation continues, and the next one waits for it. Bytes that it has read are kept
//! for the next read, and its error for the next write or flush. A write is handed over: it returns
//! success at once, and the next write or flush returns its error. If the file is dropped before,
//! the error is logged.

use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, SeekFrom};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;

use super::operation::{Finished, Operation, Outcome, Untold};
use crate::sys::uninit::{ReadBuffer, fill};
use crate::task::{BlockingHandle, coop, spawn_without_signals};

/// The most bytes that one operation reads or writes.
const MOST: usize = 2 << 20;

/// The operations of one file. See the [module](self).
#[derive(Debug)]
pub(crate) struct FileIo {
    file: Arc<File>,
    running: Option<Running>,
    /// Bytes that were read and not handed out, from `start` on.
    ahead: Vec<u8>,
    start: usize,
    failed: Untold,
}

impl FileIo {
    pub(crate) fn new(file: File) -> Self {
        Self {
            file: Arc::new(file),
            running: None,
            ahead: Vec::new(),
            start: 0,
            failed: Untold::default(),
        }
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// # Errors
    /// There is no thread for it.
    fn begin(&mut self, operation: Operation) -> io::Result<()> {
        let (file, ahead) = (self.file.clone(), self.ahead.len() - self.start);
        let reads = matches!(operation, Operation::Read(_));
        let handle = spawn_without_signals(move || operation.run(&file, ahead)).unless_refused()?;
        self.running = Some(Running { handle, reads });
        Ok(())
    }

    /// Waits for the operation that runs, if there is one.
    fn poll_running(&mut self, cx: &mut Context<'_>) -> Poll<Was> {
        let Some(running) = &mut self.running else { return Poll::Ready(Was::Nothing) };
        let finished = ready!(Pin::new(&mut running.handle).poll(cx));
        let reads = running.reads;
        self.running = None;
        let Finished { outcome, rewound } = match finished {
            Ok(finished) => finished,
            // This process is a fork of the one that began it.
            Err(error) if reads => return Poll::Ready(Was::Read(Err(error.into()))),
            Err(error) => return Poll::Ready(Was::Done(Err(error.into()))),
        };
        if rewound {
            self.start = self.ahead.len();
        }
        Poll::Ready(match outcome {
            Outcome::Read(Ok(bytes)) => {
                (self.ahead, self.start) = (bytes, 0);
                Was::Read(Ok(self.ahead.len()))
            }
            Outcome::Read(Err(error)) => Was::Read(Err(error)),
            Outcome::Written(failed) => {
                self.failed = failed;
                Was::Done(Ok(()))
            }
            Outcome::Sought(to, Ok(at)) => Was::Sought(to, Ok(at)),
            Outcome::Sought(to, Err(mut failed)) => Was::Sought(to, failed.tell().map(|()| 0)),
            Outcome::Done(mut failed) => Was::Done(failed.tell()),
        })
    }

    /// Keeps the error of an operation that was cancelled, or was a write, for the next flush.
    fn keep_error(&mut self, was: Was) {
        if let Was::Done(Err(error)) | Was::Sought(_, Err(error)) = was {
            self.failed = Untold::from(error);
        }
    }

    pub(crate) fn poll_read<B: ReadBuffer + ?Sized>(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut B,
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_proceed(cx));
        let room = buf.room();
        if room == 0 {
            coop::made_progress();
            return Poll::Ready(Ok(0));
        }
        loop {
            match ready!(self.poll_running(cx)) {
                Was::Read(Err(error)) => return Poll::Ready(Err(error)),
                Was::Read(Ok(0)) => return Poll::Ready(Ok(0)),
                was => self.keep_error(was),
            }
            let ahead = &self.ahead[self.start..];
            if !ahead.is_empty() {
                let count = fill(buf, ahead);
                self.start += count;
                coop::made_progress();
                return Poll::Ready(Ok(count));
            }
            self.begin(Operation::Read(room.min(MOST)))?;
        }
    }

    /// Queues the bytes for writing.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    /// Like [`poll_write`](Self::poll_write).
    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_proceed(cx));
        ready!(self.poll_flush(cx))?;
        let wanted = slices.iter().map(|slice| slice.len()).sum::<usize>().min(MOST);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(wanted).map_err(|_| Errno::NOMEM)?;
        for slice in slices {
            let room = wanted - bytes.len();
            bytes.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        if wanted > 0
            && let Err(error) = self.begin(Operation::Write(bytes))
        {
            self.failed = Untold::from(error);
        }
        coop::made_progress();
        Poll::Ready(Ok(wanted))
    }

    /// Waits until no operation runs. An error is that of a write, or of a cancelled operation.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.running.is_some() {
            let was = ready!(self.poll_running(cx));
            self.keep_error(was);
        }
        Poll::Ready(self.failed.tell())
    }

    /// Flushes.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }

    pub(crate) fn poll_seek(
        &mut self,
        cx: &mut Context<'_>,
        to: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        loop {
            match ready!(self.poll_running(cx)) {
                Was::Sought(asked, sought) if asked == to => return Poll::Ready(sought),
                was => self.keep_error(was),
            }
            self.failed.tell()?;
            self.begin(Operation::Seek(to))?;
        }
    }

    /// Begins to seek, as tokio's trait wants it.
    ///
    /// # Errors
    /// Another operation is in flight; there is no thread for it.
    #[cfg(feature = "tokio-io")]
    pub(crate) fn start_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        if self.running.is_some() {
            return Err(io::Error::other("an operation is in flight: call `poll_complete` first"));
        }
        self.begin(Operation::Seek(to))
    }

    /// Waits for the operation in flight, and returns the new position. 0: it was no seek.
    #[cfg(feature = "tokio-io")]
    pub(crate) fn poll_sought(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        match ready!(self.poll_running(cx)) {
            Was::Sought(_, sought) => return Poll::Ready(sought),
            was => self.keep_error(was),
        }
        self.failed.tell()?;
        Poll::Ready(Ok(0))
    }

    /// Runs an operation after all others.
    pub(super) async fn operate(&mut self, operation: Operation) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await?;
        self.begin(operation)?;
        match poll_fn(|cx| self.poll_running(cx)).await {
            Was::Done(done) => done,
            _ => Ok(()),
        }
    }

    /// Gives the file back once no operation runs.
    pub(super) async fn into_file(mut self) -> io::Result<File> {
        self.operate(Operation::Settle).await?;
        match Arc::try_unwrap(self.file) {
            Ok(file) => Ok(file),
            // A cancelled operation still uses the file, to ask for its metadata.
            Err(shared) => shared.try_clone(),
        }
    }
}

/// The operation that runs or waits for a thread.
#[derive(Debug)]
struct Running {
    handle: BlockingHandle<Finished>,
    reads: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        // The file is dropped: nobody wants what would be read.
        if self.reads {
            self.handle.abort();
        }
    }
}

/// The operation that has ended, with its result.
enum Was {
    Nothing,
    /// How many bytes are available now.
    Read(io::Result<usize>),
    Sought(SeekFrom, io::Result<u64>),
    Done(io::Result<()>),
}

#[cfg(all(test, not(wakeful_loom), not(miri)))]
mod tests {
    use std::io::Seek;
    use std::task::Waker;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_read_of_a_file_that_is_dropped_before_a_thread_begins_it_does_not_run() {
        let start = Instant::now();
        loop {
            let mut io = FileIo::new(File::open("/proc/self/exe").unwrap());
            let mut file = io.file().clone();
            // It is dropped at once, usually long before a thread wakes.
            let _ = io.poll_read(&mut Context::from_waker(Waker::noop()), &mut [0; 8][..]);
            drop(io);
            let mut file = loop {
                match Arc::try_unwrap(file) {
                    Ok(file) => break file,
                    Err(shared) => file = shared,
                }
                std::thread::yield_now();
            };
            if file.stream_position().unwrap() == 0 {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "each of them has run");
        }
    }
}
