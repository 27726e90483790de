//! The sending end of a log, which the threads that log use.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::Destination;
use super::background::{Background, Inline, Message};
use super::counts::Counts;
use super::output::line_feeds;
use super::patience::Patience;
use crate::sys::arenas;
use crate::sys::fork_check::Process;
use crate::sys::panics;
use crate::sys::thread::{start_thread, without_signals};

/// The limits of what may wait to be written. Lines beyond either limit are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// The number of waiting calls of [`LossyWriter::write_lines`] or `write`, from 1 to 1,048,576.
    /// A number out of range becomes the nearest limit. The queue is allocated at once, with 40
    /// bytes for each call.
    pub writes: usize,
    /// The number of bytes in all waiting calls.
    pub bytes: usize,
}

impl Queue {
    /// More room than this would take longer to fill than anybody waits for a log.
    const MOST_WRITES: usize = 1 << 20;
}

impl Default for Queue {
    /// Returns limits of 2,048 writes and 4 MiB.
    fn default() -> Self {
        Self { writes: 2048, bytes: 4 << 20 }
    }
}

/// Queues lines of a log for a separate thread, which writes them. [`write`](Write::write) and
/// [`write_lines`](Self::write_lines) never wait, never fail and never panic. Only methods with a
/// time limit wait.
///
/// Lines are dropped and [counted](Self::dropped) when a write fails, and when the queue is full
/// because the destination is slow. When lines can be written again, a note says how many are
/// missing.
///
/// Each call of [`write`](Write::write) should pass whole lines, as `tracing-subscriber`'s
/// formatters do. See the [module](super) for an example.
///
/// Clones write to the same destination. The thread ends when the last clone is dropped. The
/// process may end before it, so keep a guard of [`flush_on_drop`](Self::flush_on_drop) in `main`.
///
/// # Threads
/// `Send` and `Sync`.
///
/// # Forks
/// A forked child has no writer thread, and must make its own writer. Lines that the child writes
/// to its copy of the parent's writer are dropped and counted, without a wait.
#[derive(Clone)]
pub struct LossyWriter {
    shared: Arc<Shared>,
}

struct Shared {
    /// `None` only during the drop.
    messages: Option<SyncSender<Message>>,
    /// `None`: forks cannot be detected.
    process: Option<Process>,
    /// The maximum number of queued bytes.
    room: usize,
    counts: Arc<Counts>,
    /// Set if there is no thread, so that the threads that log write.
    inline: Option<Arc<Mutex<dyn Inline>>>,
}

impl Shared {
    /// Is this a forked child? Its writer's thread exists only in the parent, and another thread of
    /// the parent may have held a lock of the queue at the fork.
    fn is_forked(&self) -> bool {
        self.process.is_some_and(|process| process.is_forked())
    }

    fn messages(&self) -> Option<&SyncSender<Message>> {
        self.messages.as_ref().filter(|_| !self.is_forked())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.is_forked() {
            // In a forked child the sender is leaked, because its drop would lock the queue.
            std::mem::forget(self.messages.take());
        }
    }
}

impl LossyWriter {
    /// Makes a writer to a descriptor, such as [`io::stderr`] or a [`File`](std::fs::File), with a
    /// separate thread.
    ///
    /// If no thread can be started, each logging thread itself writes as
    /// [`without_thread`](Self::without_thread) does.
    #[must_use]
    pub fn new(fd: impl AsFd + Send + 'static) -> Self {
        Self::make(Plain(fd), Queue::default(), |run| start("log", run)).0
    }

    /// Like [`new`](Self::new), but without a thread, for a process that must have only one thread
    /// because it forks. Each logging thread itself writes as much as the destination takes without
    /// waiting. The rest stays in the queue until the next line. Other processes may write to the
    /// same pipe, socket or terminal. A terminal that nobody reads takes a part of its last line. A
    /// file on a slow disk can block a loop. So can a pipe that another process fills at the same
    /// moment, and a terminal that is almost full, if they cannot be opened by their name in
    /// `/proc`: there is no `/proc`, or they belong to another user (after `su`).
    #[must_use]
    pub fn without_thread(fd: impl AsFd + Send + 'static) -> Self {
        let refused = |_| Err(io::ErrorKind::Unsupported.into());
        Self::make(Plain(fd), Queue::default(), refused).0
    }

    /// Makes a writer to `destination`, with a thread named `name`.
    ///
    /// # Errors
    /// No thread can be started, or the name has a NUL byte.
    pub fn on_thread(name: &str, destination: impl Destination, queue: Queue) -> io::Result<Self> {
        match Self::make(destination, queue, |run| start(name, run)) {
            (this, Ok(())) => Ok(this),
            (_, Err(error)) => Err(error),
        }
    }

    /// `start` gets the closure that the thread runs.
    fn make(
        destination: impl Destination,
        queue: Queue,
        start: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>,
    ) -> (Self, io::Result<()>) {
        let (messages, receiver) = sync_channel(queue.writes.clamp(1, Queue::MOST_WRITES));
        let counts = Arc::<Counts>::default();
        let background = Background::new(receiver, destination, counts.clone());
        // If the thread cannot be started, its closure is dropped. So the closure shares
        // `background` by this lock, and does not own it.
        let background = Arc::new(Mutex::new(background));
        let on_thread = background.clone();
        let started = start(Box::new(move || {
            if let Ok(mut background) = on_thread.lock() {
                background.run();
            }
        }));
        let inline = started.is_err().then_some(background as Arc<Mutex<dyn Inline>>);
        let (messages, process) = (Some(messages), Process::current().ok());
        let shared = Shared { messages, process, room: queue.bytes, counts, inline };
        (Self { shared: Arc::new(shared) }, started)
    }

    /// Queues `bytes`, which contain `lines` lines, without waiting. Drops them if the queue is
    /// full.
    pub fn write_lines(&self, bytes: Vec<u8>, lines: u64) {
        match self.shared.messages() {
            Some(messages) if self.reserve(bytes.len()) => {
                if let Err(unsent) = messages.try_send(Message::Lines { bytes, lines }) {
                    self.drop_unsent(unsent);
                }
            }
            _ => self.shared.counts.drop_lines(lines),
        }
        self.write_inline();
    }

    /// Like [`write_lines`](Self::write_lines), but waits up to `timeout` until there is room in
    /// the queue and the lines are written. Gives up early as [`flush_within`](Self::flush_within)
    /// does. Blocks the calling thread.
    pub fn write_lines_within(&self, bytes: Vec<u8>, lines: u64, timeout: Duration) {
        // There is never room for more than the queue has.
        if self.shared.is_forked() || bytes.len() > self.shared.room {
            return self.shared.counts.drop_lines(lines);
        }
        let mut patience = Patience::new(&self.shared.counts, timeout);
        while !self.reserve(bytes.len()) {
            // The last wait may have made room, too.
            if !self.wait_for_room(&mut patience) {
                if self.reserve(bytes.len()) {
                    break;
                }
                return self.shared.counts.drop_lines(lines);
            }
        }
        match self.send(Message::Lines { bytes, lines }, &mut patience) {
            Ok(()) => {
                self.flush(&mut patience);
            }
            Err(unsent) => self.drop_unsent(unsent),
        }
    }

    /// Waits up to `timeout` until all lines that were queued before are written or dropped.
    /// Returns whether they are. Blocks the calling thread.
    ///
    /// Gives up when the destination has accepted nothing for a quarter of `timeout`. A full pipe
    /// that nobody reads is such a destination. For a slow reader or a regular file it waits for
    /// the whole `timeout`. In a forked child it returns `false` at once.
    // At the end of a program there is nothing left to do about it.
    #[allow(clippy::must_use_candidate)]
    pub fn flush_within(&self, timeout: Duration) -> bool {
        !self.shared.is_forked() && self.flush(&mut Patience::new(&self.shared.counts, timeout))
    }

    fn flush(&self, patience: &mut Patience<'_>) -> bool {
        if let Some(inline) = &self.shared.inline {
            loop {
                if let Some(mut inline) = panics::try_lock(inline) {
                    return inline.write_within(patience);
                }
                if patience.is_over() {
                    return false;
                }
                thread::sleep(Self::AGAIN);
            }
        }
        let (teller, told) = sync_channel(1);
        if self.send(Message::Tell(teller), patience).is_err() {
            return false;
        }
        loop {
            match told.recv_timeout(patience.until_next_look()) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Timeout) if !patience.is_over() => {}
                Err(_) => return false,
            }
        }
    }

    /// Returns a guard that waits up to `timeout` for the last lines when it is dropped, as
    /// [`flush_within`](Self::flush_within) does. Keep it in `main`: a panic there still drops the
    /// guard.
    #[must_use = "it flushes when it is dropped"]
    pub fn flush_on_drop(&self, timeout: Duration) -> FlushOnDrop {
        FlushOnDrop { log: self.clone(), timeout }
    }

    /// Makes the writer's thread call [`Destination::reopen`] soon, instead of before the next
    /// line.
    pub fn wake(&self) {
        // If the queue is full, the thread is awake.
        let _ = self.shared.messages().map(|messages| messages.try_send(Message::LookAround));
        self.write_inline();
    }

    /// Returns how many lines were dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.counts.dropped.load(Ordering::Relaxed)
    }

    /// Returns how many lines were written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.shared.counts.written.load(Ordering::Relaxed)
    }

    /// Neither the channel nor the count of bytes has a wait with a deadline, so each attempt is
    /// repeated after this time.
    const AGAIN: Duration = Duration::from_millis(1);

    fn send(
        &self,
        message: Message,
        patience: &mut Patience<'_>,
    ) -> Result<(), TrySendError<Message>> {
        let mut message = message;
        loop {
            let Some(messages) = self.shared.messages() else {
                return Err(TrySendError::Disconnected(message));
            };
            match messages.try_send(message) {
                Err(TrySendError::Full(back)) => {
                    if !self.wait_for_room(patience) {
                        // This may have made room, too.
                        return messages.try_send(back);
                    }
                    message = back;
                }
                result => return result,
            }
        }
    }

    /// Waits until there may be room in the queue. Without a thread, this makes the room. `false`:
    /// the patience is over.
    fn wait_for_room(&self, patience: &mut Patience<'_>) -> bool {
        if let Some(inline) = &self.shared.inline
            && let Some(mut inline) = panics::try_lock(inline)
            && !inline.write_within(patience)
        {
            return false;
        }
        let is_over = patience.is_over();
        if !is_over {
            thread::sleep(Self::AGAIN);
        }
        !is_over
    }

    /// Reserves room for this many bytes. `true`: there is room, and the bytes count as queued.
    fn reserve(&self, bytes: usize) -> bool {
        let queued = &self.shared.counts.queued;
        let is_room = queued.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.shared.room;
        if !is_room {
            queued.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_room
    }

    fn drop_unsent(&self, unsent: TrySendError<Message>) {
        let (TrySendError::Full(message) | TrySendError::Disconnected(message)) = unsent;
        if let Message::Lines { bytes, lines } = message {
            self.shared.counts.queued.fetch_sub(bytes.len(), Ordering::Relaxed);
            self.shared.counts.drop_lines(lines);
        }
    }

    /// Writes the lines without a thread. If another thread is writing, that thread writes these
    /// lines too, or leaves them to the next one.
    fn write_inline(&self) {
        let Some(inline) = &self.shared.inline else { return };
        if self.shared.is_forked() {
            return;
        }
        if let Some(mut inline) = panics::try_lock(inline) {
            inline.write_what_fits();
        }
    }
}

impl Write for &LossyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_lines(bytes.to_vec(), line_feeds(bytes).max(1));
        Ok(bytes.len())
    }

    /// Does nothing, because formatters call it after each line. Use [`LossyWriter::flush_within`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for LossyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    /// Does nothing, because formatters call it after each line. Use [`LossyWriter::flush_within`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for LossyWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (written, dropped) = (self.written(), self.dropped());
        f.debug_struct("LossyWriter")
            .field("written", &written)
            .field("dropped", &dropped)
            .finish_non_exhaustive()
    }
}

/// Flushes a [`LossyWriter`] when it is dropped: see [`LossyWriter::flush_on_drop`]. The drop
/// blocks its thread.
#[derive(Debug)]
pub struct FlushOnDrop {
    log: LossyWriter,
    timeout: Duration,
}

impl Drop for FlushOnDrop {
    fn drop(&mut self) {
        self.log.flush_within(self.timeout);
    }
}

fn start(name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    arenas::fit_to_limit();
    without_signals(|| start_thread(name, run)).map(drop)
}

/// A destination that is only a descriptor, and has the default behaviour of [`Destination`].
struct Plain<F>(F);

impl<F: AsFd + Send + 'static> Destination for Plain<F> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests;
