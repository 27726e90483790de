//! The lines of one loop, until they go to the writer. Adding a line takes no lock and no system
//! call. All lines that come within 100 ms are handed over together.
//!
//! A task of the loop hands them over when it is time; it sleeps without a timer while there are no
//! lines. At the loop's end the buffer is dropped after everything that writes to it, and that is
//! the last handover.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::format::{self, Line};
use super::settings::Query;
use super::{AccessLog, Inner};

const FLUSH_AFTER: Duration = Duration::from_millis(100);
const FLUSH_AT: usize = 64 * 1024;
/// How long a loop's end waits for the writer. For a pipe that nobody reads it is a quarter of
/// that.
const AT_THE_END: Duration = Duration::from_secs(1);

pub(crate) struct LoopLog {
    inner: Arc<Inner>,
    lines: RefCell<Vec<u8>>,
    count: Cell<u64>,
    /// The waker of the task that hands the lines over.
    waker: RefCell<Option<Waker>>,
}

impl AccessLog {
    /// Makes the buffer of this thread's loop.
    pub(crate) fn on_this_loop(&self) -> Rc<LoopLog> {
        LoopLog::new(self.inner.clone())
    }
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
        if lines > 0 {
            self.inner.writer.write_lines(bytes, lines);
        }
    }
}

impl Drop for LoopLog {
    /// Hands the last lines over. The writer has a second for them.
    fn drop(&mut self) {
        let (bytes, lines) = (self.lines.take(), self.count.take());
        if lines > 0 {
            self.inner.writer.write_lines_within(bytes, lines, AT_THE_END);
        } else {
            // Lines that were handed over earlier may wait for a slow reader.
            self.inner.writer.flush_within(AT_THE_END);
        }
        // The task then sees that there is nothing left to hand over.
        if let Some(waker) = self.waker.take() {
            waker.wake();
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
