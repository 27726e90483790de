//! One operation on the pool.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::task::{AbortsOnDrop, spawn_without_signals};

/// Runs `f` on the pool. If it is cancelled before a thread has begun `f`, `f` does not run.
pub(super) fn run<T, F>(f: F) -> OnPool<T>
where
    F: FnOnce() -> io::Result<T> + Send + 'static,
    T: Send + 'static,
{
    OnPool(AbortsOnDrop(spawn_without_signals(f)))
}

/// The future of [`run`].
#[derive(Debug)]
pub(super) struct OnPool<T>(AbortsOnDrop<io::Result<T>>);

impl<T> Future for OnPool<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(cx))?)
    }
}
