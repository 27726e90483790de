//! Blocking work that is of use only to the one who waits for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::BlockingHandle;
use crate::task::JoinError;

/// Aborts the work when it is dropped: work that no thread has begun leaves the queue. Otherwise a
/// caller that gives up again and again would fill the queue with work that nobody wants.
#[derive(Debug)]
pub(crate) struct AbortsOnDrop<T>(pub(crate) BlockingHandle<T>);

impl<T> Future for AbortsOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> Drop for AbortsOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
