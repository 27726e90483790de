//! The tasks that wait until bytes are sent, or until the other half closes.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

use crate::foreign_code::{self, SafeWaker};

/// The tasks that wait until something is sent: the task of the writing half, and the task of the
/// reading half when it has to send a Close, or may have to wait for the answer to one. These may
/// be two tasks, but tungstenite keeps only one waker.
#[derive(Debug)]
pub(super) struct Flushers {
    both: Arc<Both>,
    /// The waker that wakes both.
    waker: Waker,
    /// These are safe wakers, because a waker whose clone panics would leave its place in `both`
    /// locked.
    reader: SafeWaker,
    writer: SafeWaker,
}

#[derive(Debug, Default)]
struct Both {
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl Flushers {
    pub(super) fn new() -> Self {
        let both = Arc::<Both>::default();
        let (reader, writer) = Default::default();
        Self { waker: both.clone().into(), both, reader, writer }
    }

    pub(super) fn with_reader(&mut self, cx: &mut Context<'_>) -> Context<'_> {
        self.reader.with(cx, |cx| self.both.reader.register(cx.waker()));
        Context::from_waker(&self.waker)
    }

    pub(super) fn with_writer(&mut self, cx: &mut Context<'_>) -> Context<'_> {
        self.writer.with(cx, |cx| self.both.writer.register(cx.waker()));
        Context::from_waker(&self.waker)
    }

    /// For what need not be waited for by another task than before.
    pub(super) fn with_both(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }

    pub(super) fn wake_reader(&self) {
        self.both.reader.take().into_iter().for_each(foreign_code::wake);
    }

    pub(super) fn wake_writer(&self) {
        self.both.writer.take().into_iter().for_each(foreign_code::wake);
    }
}

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let both = [self.reader.take(), self.writer.take()];
        both.into_iter().flatten().for_each(foreign_code::wake);
    }
}
