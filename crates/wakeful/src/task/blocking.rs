//! Work that blocks: on the thread pool of the `blocking` crate, never on a loop.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use super::join::JoinError;
use crate::driver::home::Home;

/// Runs `f` on a thread that may block: file and DNS work, a database client, long computations.
///
/// Threads are made as needed, up to 500 in the process (`BLOCKING_MAX_THREADS` sets another limit; more work than that queues),
/// and end when they idle for half a second. The loop goes on meanwhile. May be called on any thread.
///
/// The threads are not those of a forked child: if its parent has used them, the work is dropped there, the handle gives an error that
/// [is cancelled](JoinError::is_cancelled), and the log says why. (Otherwise the child would wait for threads that it has not got.)
///
/// ```
/// wakeful::block_on(async {
///     let text = wakeful::task::spawn_blocking(|| std::fs::read_to_string("/proc/self/comm"));
///     assert!(!text.await.expect("no panic").expect("readable").is_empty());
/// });
/// ```
pub fn spawn_blocking<T, F>(f: F) -> BlockingHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    if pool_is_elsewhere() {
        tracing::error!(
            "spawn_blocking in a fork of the process whose pool of threads this is: refused"
        );
        return BlockingHandle { task: None };
    }
    let task = blocking::unblock(move || catch_unwind(AssertUnwindSafe(f)));
    BlockingHandle { task: Some(task) }
}

/// A pool belongs to the process that used it first, and a fork's copy of it does not know that its threads are gone.
fn pool_is_elsewhere() -> bool {
    static FIRST_USER: OnceLock<Option<Home>> = OnceLock::new();
    let first_user = FIRST_USER.get_or_init(|| Home::here().ok());
    first_user.is_some_and(|home| home.is_elsewhere())
}

type Outcome<T> = Result<T, Box<dyn std::any::Any + Send>>;

/// The handle of [`spawn_blocking`]. Dropping it lets the work go on.
///
/// *Threads*: `Send` if the result is; it may be awaited on any thread.
///
/// *Cancel-safety*: awaiting `&mut handle` may be given up and taken up again.
#[must_use = "dropping the handle detaches the work; say so with `detach`"]
pub struct BlockingHandle<T> {
    /// Present until the handle is dropped or its work aborted.
    task: Option<blocking::Task<Outcome<T>>>,
}

impl<T> BlockingHandle<T> {
    /// Takes the work off its queue if no thread has begun it. What has begun cannot be stopped.
    pub fn abort(&mut self) {
        // Dropping the pool's own handle cancels.
        self.task = None;
    }

    /// Lets the work go on without a handle.
    pub fn detach(self) {}
}

impl<T> Future for BlockingHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = &mut self.task else {
            return Poll::Ready(Err(JoinError::cancelled()));
        };
        let outcome = ready!(Pin::new(task).poll(cx));
        Poll::Ready(outcome.map_err(JoinError::panicked))
    }
}

impl<T> Drop for BlockingHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }
}

impl<T> fmt::Debug for BlockingHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingHandle").finish_non_exhaustive()
    }
}
