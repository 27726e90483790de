//! hyper's body of a request. With HTTP/2 its functions take the lock of the connection, and a body
//! may be used and dropped on any thread. See [`LockHome`] for forks.

use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Limited;
use hyper::body::Incoming;
use wakeful::task::LockHome;

use crate::error::BoxError;
use crate::foreign_code::{Locking, hold_back_wakers};

/// hyper's body, of limited length. Its wakers must be those of a `SafeWaker`, or a task's own,
/// because no other code may run while a fork is held off.
#[derive(Debug)]
pub(super) struct Received {
    /// `None` only during the drop.
    body: Option<Locking<Limited<Incoming>>>,
    /// Where the body came in, with HTTP/2.
    home: Option<LockHome>,
    /// Was the length announced?
    has_length: bool,
}

impl Received {
    /// The body of a request that this thread's loop has received. `is_http2`: it has a lock.
    pub(super) fn new(body: Incoming, most: usize, is_http2: bool) -> Self {
        let has_length = body.size_hint().exact().is_some();
        let body = Locking::new(Limited::new(body, most));
        Self { body: Some(body), home: is_http2.then(LockHome::here), has_length }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = BoxError;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let home = self.home;
        if is_forked(home) {
            return Poll::Ready(Some(Err(is_the_parent_s())));
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        with_lock(home, || Pin::new(&mut **body).poll_frame(cx))
    }

    /// In a forked child nothing more comes.
    #[inline]
    fn is_end_stream(&self) -> bool {
        let is_at_end = |body: &Limited<_>| with_lock(self.home, || body.is_end_stream());
        is_forked(self.home) || self.body.as_ref().is_none_or(|body| is_at_end(body))
    }

    /// `Limited` calls the length exact when as much has come as may come, although more may follow
    /// that is too much. Whoever sends the body on would announce that length, and send no more.
    #[inline]
    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) if self.has_length => body.size_hint(),
            Some(_) => SizeHint::default(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let Some(body) = self.body.take() else { return };
        if is_forked(self.home) {
            // If another thread forked than the loop's, the loop may have held the lock.
            return mem::forget(body);
        }
        // Wakers are called when forks are held off no more.
        hold_back_wakers(|| with_lock(self.home, || drop(body)));
    }
}

#[inline]
fn is_forked(home: Option<LockHome>) -> bool {
    home.is_some_and(LockHome::is_forked)
}

#[inline]
fn with_lock<R>(home: Option<LockHome>, f: impl FnOnce() -> R) -> R {
    match home {
        Some(home) => home.with_lock(f),
        None => f(),
    }
}

#[cold]
fn is_the_parent_s() -> BoxError {
    let text = "the body of a request that this process's parent has received: a forked child cannot read it";
    io::Error::other(text).into()
}
