//! One loop's lines, until they go to the writer: no lock, no system call, and one handover for all that came within 100 ms.
//!
//! A task of the loop hands them over when the time has come; it sleeps without a timer while there are none. At the loop's end the buffer is dropped behind everything that writes to it, and that is the last handover.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{TrySendError, sync_channel};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::format::{self, Line};
use super::writer::Message;
use super::{Inner, Query};

const FLUSH_AFTER: Duration = Duration::from_millis(100);
const FLUSH_AT: usize = 64 * 1024;
/// How long a loop's end waits for the writer.
const AT_THE_END: Duration = Duration::from_secs(1);

pub(crate) struct LoopLog {
    inner: Arc<Inner>,
    lines: RefCell<Vec<u8>>,
    count: Cell<u64>,
    /// Of the task that hands over.
    waker: RefCell<Option<Waker>>,
}

impl LoopLog {
    pub(super) fn new(inner: Arc<Inner>) -> Rc<Self> {
        let (lines, count, waker) = Default::default();
        let this = Rc::new(Self { inner, lines, count, waker });
        wakeful::spawn(hand_over(Rc::downgrade(&this))).detach();
        this
    }

    pub(crate) fn logs_queries(&self) -> bool {
        matches!(self.inner.query, Query::Log)
    }

    /// Adds a line.
    pub(crate) fn write(&self, line: &Line<'_>) {
        let mut lines = self.lines.borrow_mut();
        if lines.is_empty() {
            lines.reserve(FLUSH_AT + FLUSH_AT / 4);
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
        format::write(&mut lines, self.inner.format, line);
        self.count.set(self.count.get() + 1);
        if lines.len() >= FLUSH_AT {
            drop(lines);
            self.flush();
        }
    }

    fn flush(&self) {
        let (bytes, lines) = (self.lines.take(), self.count.take());
        if lines > 0 && self.inner.writer.try_send(Message::Lines { bytes, lines }).is_err() {
            self.inner.counters.dropped.fetch_add(lines, Ordering::Relaxed);
        }
    }
}

impl Drop for LoopLog {
    /// The last handover, for which the writer has a second.
    fn drop(&mut self) {
        let (bytes, lines) = (self.lines.take(), self.count.take());
        if lines > 0 && !self.inner.send_and_wait(Message::Lines { bytes, lines }, AT_THE_END) {
            self.inner.counters.dropped.fetch_add(lines, Ordering::Relaxed);
        }
        // The task sees that there is nothing left to hand over.
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Inner {
    /// Whether what was handed over before is written within `timeout`.
    pub(super) fn flush(&self, timeout: Duration) -> bool {
        self.tell(Instant::now() + timeout)
    }

    /// Returns whether the message was handed over: it may still be unwritten.
    fn send_and_wait(&self, message: Message, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let is_sent = self.send(message, deadline);
        if is_sent {
            self.tell(deadline);
        }
        is_sent
    }

    fn tell(&self, deadline: Instant) -> bool {
        let (written, is_written) = sync_channel(1);
        let is_sent = self.send(Message::Tell(written), deadline);
        let left = deadline.saturating_duration_since(Instant::now());
        is_sent && is_written.recv_timeout(left).is_ok()
    }

    /// The channel itself has no send with a deadline.
    fn send(&self, mut message: Message, deadline: Instant) -> bool {
        loop {
            match self.writer.try_send(message) {
                Ok(()) => return true,
                Err(TrySendError::Full(back)) if Instant::now() < deadline => message = back,
                Err(_) => return false,
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

async fn hand_over(log: Weak<LoopLog>) {
    loop {
        let some_came = poll_fn(|cx| {
            let Some(log) = log.upgrade() else { return Poll::Ready(false) };
            if log.count.get() > 0 {
                return Poll::Ready(true);
            }
            log.waker.replace(Some(cx.waker().clone()));
            Poll::Pending
        });
        if !some_came.await {
            return;
        }
        wakeful::time::sleep(FLUSH_AFTER).await;
        match log.upgrade() {
            Some(log) => log.flush(),
            None => return,
        }
    }
}

impl fmt::Debug for LoopLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopLog").field("lines", &self.count).finish_non_exhaustive()
    }
}
