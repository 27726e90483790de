//! A loop on a thread of its own, and how a test waits for what it does: by its metrics and by its
//! own word on whether it sleeps, never by the clock.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use wakeful::{EventLoop, EventLoopBuilder, LoopHandle};

/// Longer than anything here takes: reached only by what is lost, or held for ever.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A loop that runs on a thread of its own until this is dropped or [`end`](Self::end)ed.
pub(crate) struct Background {
    handle: LoopHandle,
    thread: Option<thread::JoinHandle<()>>,
}

impl Background {
    /// Calls `prepare` with the loop before it runs. What that returns is dropped before the loop
    /// is.
    pub(crate) fn start<T>(
        settings: EventLoopBuilder,
        prepare: impl FnOnce(&EventLoop) -> T + Send + 'static,
    ) -> Self {
        let (send, receive) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut event_loop = settings.build().expect("a loop can be built here");
            let _prepared = prepare(&event_loop);
            send.send(event_loop.handle()).expect("the test waits for it");
            event_loop.run().expect("the kernel lets the loop wait");
        });
        Self { handle: receive.recv().expect("the loop is built"), thread: Some(thread) }
    }

    pub(crate) fn handle(&self) -> &LoopHandle {
        &self.handle
    }

    /// Stops the loop and waits for its thread; a panic there is one here.
    pub(crate) fn end(mut self) {
        self.handle.stop();
        if let Some(Err(panic)) = self.thread.take().map(thread::JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.handle.stop();
    }
}

/// Lets other threads run until `done`.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "it never came: {what}");
        thread::yield_now();
    }
}

/// Waits until the loop has said that it sleeps: from then on a push rings, unless a ring of that
/// sleep is complete.
pub(crate) fn until_asleep(handle: &LoopHandle) {
    wait_until("the loop sleeps", || format!("{handle:?}").contains("asleep: true"));
}
