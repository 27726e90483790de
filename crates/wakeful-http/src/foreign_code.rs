//! Contains panics of wakers and of log subscribers. A waker may belong to another executor, and
//! other tasks may wait beside it.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::ops::{Deref, DerefMut};
use std::panic::resume_unwind;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use http_body::Frame;

/// Runs `f`, and contains a panic in it, which the loop of this thread counts.
pub(crate) use wakeful::log::contained as contain;
pub(crate) use wakeful::task::{Locking, SafeWaker, hold_back_wakers};

/// Contains a panic that was caught. The loop of this thread counts it, and the log says what to do
/// if a Tokio runtime was missing. The drop of `payload` may panic, too.
#[cold]
pub(crate) fn contain_payload(payload: Box<dyn Any + Send>) {
    contain(|| resume_unwind(payload));
}

/// Wakes `waker` and drops it. Contains a panic of the wake, and one of the drop.
pub(crate) fn wake(waker: Waker) {
    contain(|| waker.wake_by_ref());
    discard(Some(waker));
}

/// Drops `waker`, and contains a panic in its destructor.
pub(crate) fn discard(waker: Option<Waker>) {
    contain(|| drop(waker));
}

/// Awaits what completes in code that other tasks share: a pool, a look-up, h2's connection. This
/// task's waker may panic, or poll at once, which must not disturb that code. Nor may the drop of
/// `future` wake another task that does.
pub(crate) async fn shielded<F: Future>(future: F) -> F::Output {
    let (mut waker, mut future) = (SafeWaker::default(), pin!(Locking::new(future)));
    poll_fn(|cx| waker.with(cx, |cx| future.as_mut().as_pin_mut().poll(cx))).await
}

/// How many frames without data are skipped in one poll.
const EMPTY_FRAMES: u32 = 32;

/// Polls a body for a frame with content. hyper skips a frame without data, or queues it with
/// HTTP/2, and polls again at once, so a body that has nothing else would block its loop for ever.
/// Here such frames are dropped, and after [`EMPTY_FRAMES`] of them other tasks may run.
pub(crate) fn poll_frame_with_data<D: Buf, E>(
    cx: &mut Context<'_>,
    mut poll_frame: impl FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame<D>, E>>>,
) -> Poll<Option<Result<Frame<D>, E>>> {
    for _ in 0..EMPTY_FRAMES {
        let polled = poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame)))
                if frame.data_ref().is_some_and(|d| !d.has_remaining()) => {}
            _ => return polled,
        }
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Contains a panic in the drop of its value. Such a panic during another panic would abort the
/// process.
///
/// hyper's values of an HTTP/2 stream may panic in their drop: if a panic (for example, of a body's
/// data) has ended the connection, h2's lock stays poisoned.
#[derive(Debug)]
pub(crate) struct Contained<T>(
    /// `None` only during the drop.
    Option<T>,
);

impl<T> Contained<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// Returns the value, which is always there.
    pub(crate) fn into_inner(mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T> Deref for Contained<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl<T> DerefMut for Contained<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it is there until it is dropped")
    }
}

impl<T> Drop for Contained<T> {
    #[inline]
    fn drop(&mut self) {
        if !std::mem::needs_drop::<T>() {
            return;
        }
        if let Some(value) = self.0.take() {
            contain(|| drop(value));
        }
    }
}

/// A body's data. hyper keeps several pieces of it in a collection, where two that panic in their
/// drop (as `Bytes::from_owner` does if its owner does) would abort the process. h2 drops the data
/// with its lock held.
impl<T: Buf> Buf for Contained<T> {
    #[inline]
    fn remaining(&self) -> usize {
        (**self).remaining()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        (**self).chunk()
    }

    #[inline]
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        (**self).chunks_vectored(slices)
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        (**self).advance(count);
    }

    #[inline]
    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        (**self).copy_to_bytes(length)
    }
}

/// Logs at a level of `tracing`, and contains a panic in the subscriber, which is the program's
/// code.
macro_rules! log {
    ($level:ident, $($event:tt)+) => {
        $crate::foreign_code::contain(|| ::tracing::$level!($($event)+))
    };
}
pub(crate) use log;

/// For tests: fails if the drop of `it` waits for another thread, for example for a lock.
#[cfg(test)]
pub(crate) fn drops_without_waiting(it: impl Send + 'static) {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(it);
        tell.send(()).unwrap();
    });
    told.recv_timeout(std::time::Duration::from_secs(20)).expect("it waits for nobody");
}

/// For tests: counts the wakes of a waker that is made from it.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Wakes(std::sync::atomic::AtomicUsize);

#[cfg(test)]
impl Wakes {
    pub(crate) fn count(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[cfg(test)]
impl std::task::Wake for Wakes {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}
