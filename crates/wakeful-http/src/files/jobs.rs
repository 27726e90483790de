//! The work on the blocking pool. It is counted, so that the pool's queue stays short, and removed
//! from the queue when its result is not needed any more.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use wakeful::JoinError;
use wakeful::task::{BlockingHandle, spawn_without_signals};

/// How many jobs run or wait.
#[derive(Debug, Clone)]
pub(super) struct Jobs(Arc<Counter>);

#[derive(Debug)]
struct Counter {
    unfinished: AtomicUsize,
    max: usize,
}

impl Jobs {
    pub(super) fn new(max: usize) -> Self {
        Self(Arc::new(Counter { unfinished: AtomicUsize::new(0), max }))
    }

    /// Runs `f` on the pool. `None`: too many jobs run or wait.
    pub(super) fn try_run<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Job<T>> {
        let one_more = |unfinished| (unfinished < self.0.max).then_some(unfinished + 1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.0.unfinished.fetch_update(set, fetch, one_more).ok().map(|_| self.start(f))
    }

    /// Runs `f` for a response that has begun. There is at most one such job for each response, so
    /// there is no limit.
    pub(super) fn run<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Job<T> {
        self.0.unfinished.fetch_add(1, Ordering::Relaxed);
        self.start(f)
    }

    /// Starts a job that is counted already.
    fn start<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Job<T> {
        let unfinished = Unfinished(self.0.clone());
        Job(spawn_without_signals(move || {
            let _unfinished = unfinished;
            f()
        }))
    }
}

/// Counts a job until it is dropped: after the job has run, or with it if it never ran.
struct Unfinished(Arc<Counter>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.unfinished.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A job's result. If it is dropped before, the job is taken off the queue. A job that is running
/// continues to its end.
#[derive(Debug)]
pub(super) struct Job<T>(BlockingHandle<T>);

impl<T> Future for Job<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
