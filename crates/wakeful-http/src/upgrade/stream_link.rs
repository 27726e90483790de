//! What the user of an upgraded HTTP/2 stream, the task that sends its bytes, and the stream's
//! connection tell each other.
//!
//! hyper's two ends of a stream know too little of each other. The task does not learn that the
//! user has dropped its end while bytes wait for the client to give room, and that may last for
//! ever. The user cannot reset the stream. And a read takes a stream that the client has cancelled
//! for one that has ended: only the task sees the reset.
//!
//! The user may be on another thread than the connection.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, fence};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use futures_util::task::AtomicWaker;

use crate::foreign_code;

/// See the module's documentation.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamLink(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// [`NONE`], [`RUNS`] or [`OVER`].
    task: AtomicU8,
    /// The waker of the task. It is the same for each poll.
    waker: OnceLock<Waker>,
    /// [`NONE`], [`ASKED`] or [`ANSWERED`].
    question: AtomicU8,
    user_has_left: AtomicBool,
    /// The task must end, and so reset the stream.
    is_cut: AtomicBool,
    /// The connection is gone, and h2's lock is poisoned.
    is_lost: AtomicBool,
    /// A read that waits. These wakers are safe ones.
    reader: AtomicWaker,
}

const NONE: u8 = 0;
const RUNS: u8 = 1;
const OVER: u8 = 2;
const ASKED: u8 = 1;
const ANSWERED: u8 = 2;

/// For the task, and for the connection.
impl StreamLink {
    pub(crate) fn task_begins(&self) {
        self.0.task.store(RUNS, Release);
    }

    /// Called at the beginning of each poll of the task. Returns whether the task must end.
    pub(crate) fn polls_task(&self, cx: &Context<'_>) -> bool {
        if self.0.waker.get().is_none() {
            self.0.waker.get_or_init(|| cx.waker().clone());
            // Who wakes does so after this, or what it wants is seen now.
            fence(SeqCst);
        }
        self.0.is_cut.load(Acquire)
    }

    /// Returns whether a read wants to know that the task has looked for a reset.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.question.load(Acquire) == ASKED
    }

    /// Notes that the task has looked, and has not ended.
    pub(crate) fn answer(&self) {
        self.0.question.store(ANSWERED, Release);
        self.wake_reader();
    }

    /// Called when hyper's future is dropped.
    pub(crate) fn task_ends(&self) {
        self.0.task.store(OVER, Release);
        self.wake_reader();
    }

    /// Returns whether the user has dropped its end.
    pub(crate) fn is_left(&self) -> bool {
        self.0.user_has_left.load(Relaxed)
    }

    /// Ends the task. Bytes that are not sent are lost, and h2 resets the stream when its user has
    /// dropped it.
    pub(crate) fn cut(&self) {
        self.0.is_cut.store(true, Release);
        self.wake_task();
    }

    /// Ends the task, and fails reads. The connection has ended by a panic, which h2 reports to
    /// nobody.
    pub(crate) fn loses_connection(&self) {
        self.0.is_lost.store(true, Release);
        self.cut();
        self.wake_reader();
    }

    /// If the task was not polled yet, its first poll sees what is wanted.
    fn wake_task(&self) {
        fence(SeqCst);
        if let Some(waker) = self.0.waker.get() {
            foreign_code::contain(|| waker.wake_by_ref());
        }
    }

    fn wake_reader(&self) {
        self.0.reader.take().into_iter().for_each(foreign_code::wake);
    }
}

/// For the user.
impl StreamLink {
    pub(super) fn leave(&self) {
        self.0.user_has_left.store(true, Relaxed);
    }

    pub(super) fn has_lost_connection(&self) -> bool {
        self.0.is_lost.load(Acquire)
    }

    /// Has a read that waits be woken, also if h2 does not do that. The waker must be a safe one.
    pub(super) fn register_reader(&self, cx: &Context<'_>) {
        self.0.reader.register(cx.waker());
    }

    /// Ready when the task has looked for a reset since the first call. `true`: the task has ended.
    pub(super) fn poll_task_has_looked(&self, cx: &Context<'_>) -> Poll<bool> {
        self.register_reader(cx);
        match self.0.task.load(Acquire) {
            // Not every HTTP/2 server is one of ours.
            NONE => return Poll::Ready(false),
            OVER => return Poll::Ready(true),
            _ => {}
        }
        match self.0.question.load(Acquire) {
            NONE => {
                self.0.question.store(ASKED, Release);
                self.wake_task();
                Poll::Pending
            }
            ANSWERED => {
                self.0.question.store(NONE, Relaxed);
                Poll::Ready(false)
            }
            _ => Poll::Pending,
        }
    }
}
